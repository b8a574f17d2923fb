"""Write docs/settings.md, the table of all settings, from where they are declared.

``make stubs`` runs it after a setting was added; tests/test_public_names.py compares the page.
"""

import json
from itertools import groupby
from pathlib import Path

from undrift.cli.listing import settings

PAGE = Path(__file__).parents[1] / "docs/settings.md"
HEAD = """# Settings

*For everyone who writes a spec.* Search this page for what you want to set.

What a spec may set. `-s training.clip=10` sets one on the command line; `undrift list settings`
prints this page. `undrift.run` takes most of them by the same names, a table where there is a table
here. Others are in Python

* `best`, `stop` and `per_client`: `callbacks=[ud.Goal(metric="auc"), ud.EarlyStopping(patience=5),
  ud.PerClient()]`;
* `target`: `callbacks=[ud.EarlyStopping(metric="gap", target=1e-6)]`;
* `vary`, `target_accuracy` and `smooth`: for specs alone, which `undrift.run_spec` runs.

Written by `make stubs`.
"""


def page() -> str:
    rows, _ = settings()
    parts = [HEAD]
    for place, some in groupby(rows, key=lambda row: row["place"]):
        lines = [f"## {place[0].upper()}{place[1:]}\n", "| name | takes | default | meaning |"]
        lines.append("|---|---|---|---|")
        for row in some:
            default = "required" if row["required"] else _code(row["default"])
            cells = (f"`{row['name']}`", row["takes"], default, row["meaning"])
            lines.append(f"| {' | '.join(map(_cell, cells))} |")
        parts.append("\n".join(lines) + "\n")
    return "\n".join(parts)


def _code(value: object) -> str:
    return "" if value is None else f"`{json.dumps(value)}`"


def _cell(text: object) -> str:
    return str(text).replace("|", "\\|")


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
