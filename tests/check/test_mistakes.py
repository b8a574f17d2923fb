"""What the structure of a method lacks is told in one sentence, whoever runs it."""

import pytest

from undrift.check import CHECKS, failures
from undrift.check.checks import Failure, results
from undrift.check.template import write
from undrift.spec.errors import BadFile
from undrift.spec.user_files import execute

RETURNED = "return self.Client(c=c), self.Up(dy=y - got.x, dc=c - me.c)"
MISTAKES = {
    "def work(": ("def wrok(", "Mine has no work: write work(self, me, got, f)"),
    "def merge(": ("def merged(", "Mine has no merge: write merge(self, s, up, cohort)"),
    "def client(": ("def clients(", "Mine.Client: c is missing; client(self, x0) must give it"),
    "def server(": ("def servers(", "Mine.Server: c is missing; server(self, x0) must give it"),
    RETURNED: (
        "return self.Up(dy=y - got.x, dc=c - me.c)",
        "Mine.work must return Client and Up; it returned Up",
    ),
    "self.Client(c=c), self.Up(dy=y - got.x, dc=c - me.c)": (
        "self.Up(dy=y - got.x, dc=c - me.c), self.Client(c=c)",
        "Mine.work must return Client and Up; it returned Up and Client",
    ),
    "self.Up(dy=y - got.x, dc=c - me.c)": (
        "(y - got.x, c - me.c)",
        "Mine.work must return Client and Up; it returned Client and tuple",
    ),
    "return self.Server(x=s.x": (
        "self.Server(x=s.x",
        "Mine.merge must return Server; it returned None",
    ),
    "self.Up(dy=": ("self.Up(dx=", "Mine.Up has no field dx; it has dy, dc"),
    "dc=c - me.c": ("dc=0.5", "Mine.work gives dc as float, not as a vector: for a number write 0"),
    "return self.Client(c=0 * x0)": (
        "return self.Client(c=0.0)",
        "Mine.client gives c as float, not as a vector: for a number write 0",
    ),
    "dy=y - got.x": ("dy=(y - got.x)[..., :-1]", "Mine.work gives dy as torch.float64 ["),
    ", dc=c - me.c": (", dc=(c - me.c).sum()", "Mine.work gives dc as torch.float64 [], not as"),
    "dc=c - me.c)": ("dc=(c - me.c).float())", "Mine.work gives dc as torch.float32 ["),
    "self.Client(c=c),": ("self.Client(c=c[..., :2]),", "Mine.work gives c as torch.float64 ["),
    "x=s.x + up.dy": ("x=(s.x + up.dy).sum()", "Mine.merge gives x as torch.float64 [], not as"),
    "x=x0, c=": ("x=x0[:1], c=", "Mine.server gives x as torch.float64 [1], not as"),
    "+ up.dy": ("+ up.dx", "Mine.Up has no field dx; it has dy, dc"),
    "+ got.c": ("+ got.d", "Mine.Down has no field d; it has x, c"),
    "of these names\n        x: Vec\n        c: Vec": (
        "of these names\n        x: Vec\n        d: Vec",
        "Mine.Down has a field d, which Mine.Server lacks; it has x, c",
    ),
    "f.steps": (
        "f.step",
        "f has no step; it has blocks, blocks_before, decay, descend, grad, round, sgd, solve, "
        "steps",
    ),
}


@pytest.mark.parametrize("check", ["purity", "affine", "traffic"])
@pytest.mark.parametrize("text", MISTAKES)
def test_a_mistake_is_told_by_whoever_meets_it(tmp_path, text, check):
    wrong, sentence = MISTAKES[text]
    file = write("Mine", tmp_path)
    code = file.read_text(encoding="utf-8")
    assert code.count(text) == 1
    file.write_text(code.replace(text, wrong), encoding="utf-8")
    (cls,) = execute(file).methods.values()
    (ended,) = results(cls, {check: CHECKS[check]})
    assert sentence in ended.failure


FORGOTTEN = """
from undrift.core import Message, Method, Phase, Scratch, State, Vec


class Mine(Method):
    class Client(State):
        g: Scratch

    class Anchor(Phase):
        class Up(Message):
            pass

        def work(self, me, got, f):
            return me.replace(g=got.x), self.Up()

        def merge(self, s, up, cohort):
            return s

    class Up(Message):
        y: Vec

    def work(self, me, got, f):
        return me, self.Up(y=got.x + me.g)

    def merge(self, s, up, cohort):
        return self.Server(x=up.y)
"""


def test_a_scratch_that_no_phase_kept_is_named(tmp_path):
    file = tmp_path / "mine.py"
    file.write_text(FORGOTTEN, encoding="utf-8")
    (cls,) = execute(file).methods.values()
    CHECKS["purity"](cls)
    file.write_text(FORGOTTEN.replace("me.replace(g=got.x)", "me"), encoding="utf-8")
    (cls,) = execute(file).methods.values()
    (ended,) = results(cls, {"purity": CHECKS["purity"]})
    sentence = "Mine.Client has no g yet: no phase of this round has kept one"
    assert "(mine.py:23)" in ended.failure and sentence in ended.failure


def test_a_nested_class_that_is_no_phase_is_named(tmp_path):
    file = tmp_path / "mine.py"
    file.write_text(FORGOTTEN.replace("Anchor(Phase)", "Anchor"), encoding="utf-8")
    with pytest.raises(BadFile, match=r"Mine\.Anchor is no Phase: write class Anchor\(Phase\):"):
        execute(file)


def changed(folder, text, wrong):
    file = write("Mine", folder)
    code = file.read_text(encoding="utf-8")
    assert code.count(text) == 1
    file.write_text(code.replace(text, wrong), encoding="utf-8")
    (cls,) = execute(file).methods.values()
    return cls


@pytest.mark.parametrize(
    ("text", "wrong", "first", "said"),
    [
        (
            "        c = me.c -",
            "        me.c.mul_(0.5)\n        c = me.c -",
            "purity",
            "arguments: c",
        ),
        ("dy=y - got.x", "dy=(y - got.x) / (y - got.x).norm()", "duplication", "client twice"),
        (
            "dy=y - got.x",
            "dy=y - got.x - 0.1 * (y - got.x).mean(0)",
            "engines_agree",
            "over dim=-1 alone",
        ),
    ],
)
def test_the_reason_comes_before_what_it_damages(tmp_path, text, wrong, first, said):
    found = failures(changed(tmp_path, text, wrong))
    assert next(iter(found)) == first and said in found[first]


def test_the_first_cost_that_differs_is_named(tmp_path):
    """Clients side by side have rows ``[C, d]``, and take one gradient more here."""
    text = "        c = me.c - got.c"
    cls = changed(tmp_path, text, f"        y.dim() > 1 and f.grad(y)\n{text}")
    with pytest.raises(Failure, match=r"^simulate counts gradients = \d+, wire \d+$"):
        CHECKS["engines_agree"](cls)


def test_a_parameter_without_a_type_is_named(tmp_path):
    cls = changed(tmp_path, "    lr: Positive\n", "    lr = 0.1\n")
    with pytest.raises(Failure, match="lr needs a type to be a parameter: lr: Positive = "):
        CHECKS["documented"](cls)
