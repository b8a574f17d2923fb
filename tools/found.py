"""Note in the items of the papers which runs their reasons and causes are about.

``python -m tools.found`` after new runs were brought to docs/reproductions: the line ``found`` of
an item becomes what its page has. An item that changed is named, since its texts were written about
other runs: read them again. ``--check`` writes nothing, and fails if there is a difference.
"""

import argparse
import json
import re
import sys
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path

from undrift_papers.reproduce.verdict import COMPUTED, OPEN

ROOT = Path(__file__).parents[1]
PAGES = ROOT / "docs/reproductions"
PAPERS = ROOT / "src/undrift_papers"
LINE = re.compile(r"^found = \{[^}\n]*\}", re.MULTILINE)
TEXTS = re.compile(r"^(?=(?:reason|causes|answer) = )", re.MULTILINE)
"""Where a line goes that was not there."""

Found = Mapping[str, float]


def written(source: Path, found: Found) -> str:
    """An item's file with these numbers, and nothing else changed."""
    text = source.read_bytes().decode()
    inner = ", ".join(f"{name} = {value!r}" for name, value in found.items())
    line = f"found = {{ {inner} }}"
    new, count = LINE.subn(line, text, count=1)
    if not count:
        new = TEXTS.sub(f"{line}\n", text, count=1)
    before, after = tomllib.loads(text), tomllib.loads(new)
    before["item"]["found"] = dict(found)
    if before != after:
        raise ValueError(f"{source}: write this line by hand: {line}")
    return new


def changes(pages: Path, papers: Path) -> Iterator[tuple[str, Path, Found, Found]]:
    """Every item whose texts are about other runs than its page: name, file, old and new."""
    for file in sorted(pages.glob("*/*.json")):
        page = json.loads(file.read_text(encoding="utf-8"))
        source = papers / f"{page['item']}.toml"
        item = tomllib.loads(source.read_text(encoding="utf-8"))["item"]
        said = item.get("reason") or item.get("causes") or item.get("answer")
        before, ran = item.get("found", {}), page["verdict"] not in (OPEN, COMPUTED)
        if said and ran and before != page["found"]:
            yield page["item"], source, before, page["found"]


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    text = "write nothing, and fail if an item and its page differ"
    parser.add_argument("--check", action="store_true", help=text)
    parser.add_argument("--pages", type=Path, default=PAGES, metavar="FOLDER")
    parser.add_argument("--papers", type=Path, default=PAPERS, metavar="FOLDER")
    args = parser.parse_args()
    changed = list(changes(args.pages, args.papers))
    for name, source, old, new in changed:
        if not args.check:
            source.write_bytes(written(source, new).encode())
        print(f"{name}: {dict(old) or 'nothing'} -> {dict(new)}")
    if changed and not args.check:
        print("Read their reasons and causes again, then write their pages again.")
    return int(args.check and bool(changed))


if __name__ == "__main__":
    sys.exit(main())
