"""Every block of code of every page runs, in the order of the page, in a folder of its own.

``python`` fences share their names, ``sh`` fences are typed line by line. A fence after
``<!-- file: NAME -->`` is written to that file. ``<!-- setup ... -->`` is Python that readers do
not see: what a block needs, or what must hold after it. ``<!-- not run: REASON -->`` says why a
fence is only shown. ``text`` fences are what is printed, and those in braces are the site's own.
"""

import dataclasses
import linecache
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from undrift.cli import main
from undrift.core import registry

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PAGES = sorted(page for page in DOCS.glob("*.md") if page.stem != "cli")
LONG = {"choosing", "python", "step-sizes"}
"""Pages that take more than about ten seconds: `make test-all` runs them."""
LIMIT = 240
"""Seconds of a page, and of a command."""
PART = re.compile(
    r"^<!-- setup\n(?P<setup>.*?)^-->$"
    r"|(?:^<!-- (?P<word>file|not run): (?P<about>[^\n]+?) -->\n+)?"
    r"^(?P<ticks>```+)(?P<kind>[^\n]*)\n(?P<code>.*?)^(?P=ticks)$",
    re.MULTILINE | re.DOTALL,
)


@dataclasses.dataclass(frozen=True)
class Part:
    """A fence or a setup of a page: what to do with its code."""

    page: str
    line: int
    kind: str
    code: str
    word: str = ""
    about: str = ""

    @property
    def where(self) -> str:
        return f"docs/{self.page}:{self.line}"

    @property
    def runs(self) -> bool:
        return self.kind in ("python", "sh") or self.word == "file"

    @property
    def said(self) -> bool:
        """Whether it is run, or need not be, or the page says why not."""
        return self.runs or self.word == "not run" or self.kind == "text" or self.kind[:1] == "{"


def parts(page: Path, text: str = "") -> Iterator[Part]:
    text = text or page.read_text(encoding="utf-8")
    for found in PART.finditer(text):
        setup = found["setup"] is not None
        start = found.start("setup") if setup else found.start("code")
        line = text.count("\n", 0, start) + 1
        if setup:
            yield Part(page.name, line, "python", found["setup"])
        else:
            word, about = found["word"] or "", found["about"] or ""
            yield Part(page.name, line, found["kind"].strip(), found["code"], word, about)


def commands(code: str) -> Iterator[str]:
    for line in code.replace("\\\n", " ").splitlines():
        if command := re.split(r"(?:^|\s)#\s", line)[0].strip():
            yield command


def typed(command: str, where: str, capsys: pytest.CaptureFixture[str]) -> None:
    """A line of a shell: ``undrift`` in this process, which has loaded torch, others in theirs."""
    program, *words = shlex.split(command)
    if program == "undrift" and not {"|", ">", "&&"} & {*words}:
        try:
            code: object = main(words)
        except SystemExit as end:
            code = end.code
        said = "".join(capsys.readouterr())
    else:
        shell = command.replace("undrift ", f"{sys.executable} -m undrift ")
        shell = re.sub(r"^python ", f"{sys.executable} ", shell)
        options = {"capture_output": True, "encoding": "utf-8", "timeout": LIMIT}
        done = subprocess.run(shell, shell=True, stdin=subprocess.DEVNULL, **options)
        code, said = done.returncode, done.stdout + done.stderr
    assert not code, f"{where}: {command}\n{said[-3000:]}"


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """Empty, and what a page does to this process ends with it."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MPLBACKEND", "agg")
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    random = torch.get_rng_state()
    modules, precision = set(sys.modules), torch.get_default_dtype()
    methods = dict(registry)
    yield tmp_path
    for name in registry.keys() - methods:
        del registry[name]
    torch.set_rng_state(random)
    torch.set_default_dtype(precision)
    for name in set(sys.modules) - modules:
        if str(getattr(sys.modules[name], "__file__", "")).startswith(str(tmp_path)):
            del sys.modules[name]


def run(page: Path, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    if "examples/" in page.read_text(encoding="utf-8"):
        shutil.copytree(ROOT / "examples", folder / "examples")
    names: dict[str, object] = {"__name__": "page"}
    for part in parts(page):
        if part.word == "not run" or not part.runs:
            continue
        if part.word == "file":
            (folder / part.about).parent.mkdir(parents=True, exist_ok=True)
            (folder / part.about).write_text(part.code, encoding="utf-8")
        elif part.kind == "sh":
            for command in commands(part.code):
                typed(command, part.where, capsys)
        else:
            linecache.cache[part.where] = len(part.code), None, part.code.splitlines(True), ""
            exec(compile(part.code, part.where, "exec"), names)


@pytest.mark.timeout(LIMIT)
@pytest.mark.skipif(os.name != "posix", reason="pages are written for a shell")
@pytest.mark.parametrize(
    "page",
    [
        pytest.param(page, marks=pytest.mark.whole if page.stem in LONG else (), id=page.stem)
        for page in PAGES
        if any(part.runs and part.word != "not run" for part in parts(page))
    ],
)
def test_a_page_runs(page, folder, capsys):
    run(page, folder, capsys)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_every_fence_is_run_or_the_page_says_why_not(page):
    assert [f"{part.where}: {part.kind}" for part in parts(page) if not part.said] == []
    text = page.read_text(encoding="utf-8")
    assert len(re.findall(r"^ *```", text, re.MULTILINE)) == 2 * sum(
        part.kind != "python" or f"```python\n{part.code}```" in text for part in parts(page)
    ), "a fence that is indented, or not closed"


def test_long_pages_are_pages():
    assert {page.stem for page in PAGES} >= LONG


WRONG = {
    "an error": "```python\n1 / 0\n```\n",
    "a command that fails": "```sh\nundrift show Nobody\n```\n",
    "another command that fails": "```sh\npython -c 'raise SystemExit(3)'\n```\n",
    "what must hold": "```python\nx = 1\n```\n<!-- setup\nassert x == 2\n-->\n",
    "a file": "<!-- file: a.py -->\n```python\n1 / 0\n```\n```sh\npython a.py\n```\n",
}


@pytest.mark.parametrize("text", WRONG.values(), ids=WRONG)
def test_what_does_not_run_is_found(text, folder, capsys):
    page = folder / "page.md"
    page.write_text(text, encoding="utf-8")
    with pytest.raises((AssertionError, ZeroDivisionError)):
        run(page, folder, capsys)


@pytest.mark.parametrize(
    "fence", ["```\nx\n```\n", "```toml\nx = 1\n```\n", "```console\n$ x\n```\n"]
)
def test_a_fence_that_is_not_run_is_found(fence):
    (part,) = parts(DOCS / "page.md", fence)
    assert not part.said
    (part,) = parts(DOCS / "page.md", f"<!-- not run: because -->\n{fence}")
    assert part.said and part.about == "because"
