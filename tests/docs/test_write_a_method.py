"""The table of mistakes in docs/write-a-method.md has what `undrift check` says of each."""

import re
from pathlib import Path

import pytest

from undrift.check.found import checked
from undrift.spec.user_files import execute

PAGE = (Path(__file__).parents[2] / "docs/write-a-method.md").read_text(encoding="utf-8")
(SCAF,) = re.findall(r"^<!-- file: scaf.py -->\n```python\n(.*?)^```$", PAGE, re.M | re.S)
SAYS = dict(re.findall(r"^\| (.*?) \| (.*?) \|$", PAGE.partition("## Common mistakes")[2], re.M))
MISTAKES = {
    "a flipped sign": ("- me.c + got.c)", "+ me.c - got.c)"),
    "without `f.steps`": ("(f.steps * self.lr)", "self.lr"),
    "without `cohort.fraction`": ("cohort.fraction * ", ""),
    "the new state": ("return self.Client(c=c), self.Up", "return me, self.Up"),
    "the server keeps": ("c=s.c + cohort.fraction * up.dc", "c=s.c"),
    "written in place": ("        c = me.c", "        me.c.mul_(0.5)\n        c = me.c"),
    "kept on self": ("        y = f.sgd", "        self.last = got.x\n        y = f.sgd"),
    "a norm over": ("dy=y - got.x", "dy=(y - got.x) / (y - got.x).norm()"),
    "only `self.Up": ("return self.Client(c=c), self.Up", "return self.Up"),
    "a vector of another": ("dc=c - me.c", "dc=(c - me.c).sum()"),
    "a misspelt": ("+ got.c)", "+ got.cc)"),
    "an undocumented": ("        lr: eta, the local step size.\n", ""),
}


def test_each_row_is_tried():
    rows = [row for row in SAYS if row != "mistake" and set(row) != {"-"}]
    assert [row.startswith(start) for row, start in zip(rows, MISTAKES, strict=True)] == [True] * 12


@pytest.mark.thorough
@pytest.mark.parametrize("mistake", MISTAKES)
def test_what_a_mistake_is_told(mistake, tmp_path):
    right, wrong = MISTAKES[mistake]
    assert right in SCAF
    file = tmp_path / "scaf.py"
    file.write_text(SCAF.replace(right, wrong), encoding="utf-8")
    (says,) = [text for row, text in SAYS.items() if row.startswith(mistake)]
    (method,) = checked(execute(file))
    told = {one.name: one.failure for one in method.results() if one.failure}
    name, _, sentence = (
        says.partition(": ") if not says.startswith("it stops") else ("purity", "", says)
    )
    assert sentence in told[name]
