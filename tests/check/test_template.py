import pytest

from undrift.check import CHECKS, examine, failures
from undrift.check.template import BadName, write
from undrift.spec.user_files import execute


def test_the_new_file_passes_the_battery(tmp_path):
    file = write("Mine", tmp_path)
    with pytest.raises(BadName, match="exists already"):
        write("Mine", tmp_path)
    (method,) = execute(file).methods.values()
    assert method.__name__ == "Mine"
    assert failures(method) == {}


MUTANTS = {
    "grad(y) - me.c + got.c": ("grad(y) + me.c - got.c", {"affine", "exactness"}),
    "c = me.c - got.c + (got.x - y)": ("c = me.c + got.c + (got.x - y)", {"affine"}),
    "exact = True": ("exact = False", {"exactness"}),
    "lr: eta, the local step size.": ("Eta is the local step size.", {"documented"}),
    "return self.Client(c=c), self.Up(dy=y - got.x, dc=c - me.c)": (
        "up = self.Up(dy=y - got.x, dc=c - me.c); me.c.copy_(c); return me, up",
        {"purity"},
    ),
    "dy=y - got.x, dc=c - me.c": ("dy=(y - got.x) * (1 + y.mean()), dc=c - me.c", {"affine"}),
    "cohort.fraction": ("(1 if cohort.fraction == 1 else 3 / 5)", {"drop_outs"}),
    "cohort.fraction * up.dc": ("up.dc", {"drop_outs"}),
    "c=s.c + ": ("c=s.c + 0 * ", {"updates"}),
    "dy=y - got.x, dc": ("dy=(y - got.x).sign() * self.lr, dc", {"rotation"}),
}


@pytest.mark.covering(4)
@pytest.mark.parametrize("text", MUTANTS)
def test_what_is_wrong_is_said(tmp_path, text):
    wrong, expected = MUTANTS[text]
    file = write("Mine", tmp_path)
    code = file.read_text()
    assert code.count(text) == 1
    file.write_text(code.replace(text, wrong))
    found = failures(execute(file).methods["Mine"])
    assert expected <= set(found) <= set(CHECKS)
    assert all(len(sentence) > 20 for sentence in found.values())


ADAPTIVE = """\
    def merge(self, s: Server, up: Up, cohort: Cohort) -> Server:
        c = s.c + up.dy**2
        return self.Server(x=s.x + up.dy / (c.sqrt() + 1), c=c)
"""


def test_an_adaptive_server_step_is_told_what_to_declare(tmp_path):
    file = write("Mine", tmp_path)
    code = file.read_text()
    code = code[: code.index("    def merge")] + ADAPTIVE
    code = code.replace("- me.c + got.c", "").replace("exact = True", "exact = False")
    file.write_text(code)
    found = failures(execute(file).methods["Mine"])
    assert "affine = False" in found["affine"] and "coordinatewise = True" in found["rotation"]
    declared = "exact = False\n    affine = False\n    coordinatewise = True"
    file.write_text(code.replace("exact = False", declared))
    ended = {check.name: check for check in examine(execute(file).methods["Mine"])}
    assert [name for name in ended if ended[name].inapplicable] == ["affine", "rotation"]
    assert not {"affine", "rotation"} & {name for name in ended if ended[name].failure}


def test_state_on_self_is_told_with_its_line(tmp_path):
    file = write("Mine", tmp_path)
    code, kept = file.read_text(), "        self.c = c\n"
    at = code.index("        return self.Client(c=c)")
    file.write_text(code[:at] + kept + code[at:])
    line = code[:at].count("\n") + 1
    assert f"mine.py:{line})" in failures(execute(file).methods["Mine"])["purity"]
