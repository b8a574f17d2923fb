import pytest

from undrift.check import CHECKS, battery
from undrift.check.template import BadFile, load, write
from undrift.core import registry


@pytest.fixture(autouse=True)
def clean():
    known = dict(registry)
    yield
    registry.clear()
    registry.update(known)


def test_the_new_file_passes_the_battery(tmp_path):
    file = write("Mine", tmp_path)
    with pytest.raises(BadFile, match="exists already"):
        write("Mine", tmp_path)
    (method,) = load(file)
    assert method.__name__ == "Mine"
    assert battery(method) == {}


MUTANTS = {
    "grad(y) - me.c + got.c": ("grad(y) + me.c - got.c", {"affine", "exactness"}),
    "c = me.c - got.c + (got.x - y)": ("c = me.c + got.c + (got.x - y)", {"affine"}),
    "exact = True": ("exact = False", {"exactness"}),
    "lr  eta, local step": ("eta, local step", {"documented"}),
    "return self.Client(c=c), self.Up(dy=y - got.x, dc=c - me.c)": (
        "up = self.Up(dy=y - got.x, dc=c - me.c); me.c.copy_(c); return me, up",
        {"purity"},
    ),
    "dy=y - got.x, dc=c - me.c": ("dy=(y - got.x) * (1 + y.mean()), dc=c - me.c", {"affine"}),
    "dy=y - got.x, dc": ("dy=(y - got.x).sign() * self.lr, dc", {"rotation"}),
}


@pytest.mark.parametrize("text", MUTANTS)
def test_what_is_wrong_is_said(tmp_path, text):
    wrong, expected = MUTANTS[text]
    file = write("Mine", tmp_path)
    code = file.read_text()
    assert code.count(text) == 1
    file.write_text(code.replace(text, wrong))
    failures = battery(load(file)[0])
    assert expected <= set(failures) <= set(CHECKS)
    assert all(len(sentence) > 20 for sentence in failures.values())


def test_files_without_a_method_are_refused(tmp_path):
    file = tmp_path / "a.py"
    with pytest.raises(BadFile, match="no such file"):
        load(file)
    file.write_text("x = 1\n")
    with pytest.raises(BadFile, match="defines no method"):
        load(file)
    file.write_text("x = 1\ny = undefined\n")
    with pytest.raises(BadFile, match=r"a.py:2: NameError"):
        load(file)
    file.write_text("x = (\n")
    with pytest.raises(BadFile, match=r"a.py:1: SyntaxError"):
        load(file)
    for name in ("mine", "../Mine", "FedAvg"):
        with pytest.raises(BadFile):
            write(name, tmp_path)
