"""Problems, networks and objectives of one's own: what ``new`` writes passes, what breaks it is
told.
"""

import pytest

from undrift.check import battery, networks, objectives, problems
from undrift.check.found import checked
from undrift.check.template import BadName, write
from undrift.spec.user_files import BadFile, execute

NAMES = {"problem": "mine", "network": "mine", "objective": "Mine"}
CHECKS = {"problem": problems.CHECKS, "network": networks.CHECKS, "objective": objectives.CHECKS}


@pytest.mark.parametrize("checks", [battery.CHECKS, *CHECKS.values()])
def test_the_title_of_a_check_is_a_whole_sentence(checks):
    """It is the first line of its docstring."""
    titles = [check.__doc__.strip().splitlines()[0] for check in checks.values()]
    assert [title for title in titles if not title.endswith(".")] == []


def failed(file):
    (thing,) = checked(execute(file))
    return {result.name: result.failure for result in thing.results() if result.failure}


@pytest.mark.parametrize("kind", NAMES)
def test_a_new_file_passes_its_checks(tmp_path, kind):
    file = write(NAMES[kind], tmp_path, kind)
    (thing,) = checked(execute(file))
    assert thing.name == NAMES[kind]
    found = list(thing.results())
    assert [result.name for result in found] == [*CHECKS[kind]]
    assert [result.failure for result in found] == [None] * len(found)


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        ("problem", "Mine"),
        ("problem", "quadratic"),
        ("problem", "class"),
        ("network", "mlp"),
        ("network", "my-net"),
        ("objective", "FedLC"),
        ("objective", "mine"),
        ("method", "FedAvg"),
        ("method", "../Mine"),
    ],
)
def test_names_that_nothing_new_can_have(tmp_path, kind, name):
    with pytest.raises(BadName):
        write(name, tmp_path, kind)
    assert not any(tmp_path.iterdir())


def test_a_function_that_does_not_say_what_it_returns_is_named(tmp_path):
    (tmp_path / "mine.py").write_text("def clinics(path: str = 'a.csv'):\n    return path\n")
    with pytest.raises(BadFile, match=r"write -> ud\.Problem where clinics returns one"):
        checked(execute(tmp_path / "mine.py"))


WEIGHTED = """\
import torch
from torch import nn
from torch.nn import functional as F
import undrift as ud

WEIGHT = torch.tensor([1.0, 4.0])


def clinics() -> ud.Problem:
    data = torch.arange(12.0).view(12, 1) / 12, torch.arange(12) % 3 % 2
    return ud.Neural(nn.Linear(1, 2), data, [range(6), range(6, 12)], loss=weighted)


def weighted(outputs, targets):
    weight = WEIGHT.to(outputs)
"""


def test_a_loss_that_divides_by_the_weights_of_its_batch_is_told(tmp_path):
    ways = {
        "    return F.cross_entropy(outputs, targets, weight)\n": True,
        '    total = F.cross_entropy(outputs, targets, weight, reduction="sum")\n'
        "    return total / len(targets)\n": False,
    }
    for k, (way, fails) in enumerate(ways.items()):
        file = tmp_path / f"weighted{k}.py"
        file.write_text(WEIGHTED + way)
        failures = {check.name: check.failure for check in checked(execute(file))[0].results()}
        assert ('reduction="sum"' in (failures.pop("batches") or "")) == fails
        assert not any(failures.values())


MUTANTS = {
    "problem": [
        ("away / far.unsqueeze(-1)", "away", {"gradient"}),
        ("return slope.mean(1)", "return slope.sum(1)", {"gradient", "batches"}),
        ("* drawn).sum(1)", ").sum(1)", {"batches"}),
        ("drawn.sum(1).clamp(min=1)", "batch.shape[1]", {"batches"}),
        ("self.points[members]", "self.points[: len(members)]", {"members"}),
        ("self.points.to(device, dtype)", "self.points", {"precision"}),
        ("draw = torch.Generator().manual_seed(seed)", "draw = torch.Generator(); draw.seed()",
         {"builds"}),
        ("away = y.unsqueeze(1)", "y *= 1.001; away = y.unsqueeze(1)", {"purity"}),
        ("[samples] * self.clients", "[samples]", {"sizes"}),
        ("torch.randn(clients, ", "torch.randn(2, ", {"sizes"}),
        ("float(slope.mean((0, 1)).norm())", "1.0", {"gradient"}),
        ("(0, 1)).norm())}", '(0, 1)).norm()), "one": torch.rand(1).item()}', {"purity"}),
    ],
    "network": [
        ("nn.GroupNorm(4, width)", "nn.BatchNorm2d(width)", {"learns"}),
        ("** 2, classes)", "** 2, classes + 1)", {"outputs"}),
        ("nn.Flatten(),", "nn.Flatten(0),", {"outputs", "learns"}),
        ("nn.Dropout(dropout)", "Always()", {"repeats", "samples_apart"}),
        ("nn.Dropout(dropout)", "Short()", {"precision"}),
        ("nn.Dropout(dropout)", "Mixing()", {"samples_apart"}),
        ("nn.Dropout(dropout)", "Spare()", {"parameters"}),
        ("    return nn.Seq", "    import torch\n    torch.manual_seed(1)\n    return nn.Seq",
         {"repeats"}),
        ("    return nn.Seq", "    import random; random.random()\n    return nn.Seq", {"repeats"}),
        ("    return nn.Seq", "    return [1]\n    return nn.Seq", {"outputs", "learns"}),
    ],
    "objective": [
        ("(batch.weights * (each + self.mu * away)).sum()", "(each + self.mu * away).mean()",
         {"padding"}),
        ("(logits.softmax", "(logits.detach().softmax", {"gradient"}),
        ("logits, before = local(batch.x)", "logits, before = local(batch.x).detach()",
         {"gradient"}),
        ("away)).sum()", "away))", {"number"}),
        ('needs = ("global",)', "needs = ()", {"number", "gradient"}),
        ("        each =", "        batch.weights.mul_(0.5)\n        each =", {"purity"}),
        ("        each =", "        import torch; logits = logits + torch.rand(1)\n        each =",
         {"purity"}),
        ("mu: mu, the weight of the penalty.", "Mu is a weight.", {"documented"}),
        ('title = "A local loss of my own"', 'title = ""', {"documented"}),
    ],
}  # fmt: skip
LAYERS = """

class Always(nn.Module):
    def forward(self, x):
        return nn.functional.dropout(x, 0.1, training=True)


class Short(nn.Module):
    def forward(self, x):
        return x.float()


class Mixing(nn.Module):
    def forward(self, x):
        return x - x.mean(0, keepdim=True)


class Spare(nn.Module):
    def __init__(self):
        super().__init__()
        self.spare = nn.Linear(2, 2)

    def forward(self, x):
        return x
"""


@pytest.mark.covering(12)
@pytest.mark.parametrize(
    ("kind", "old", "new", "expected"),
    [(kind, *mutant) for kind, mutants in MUTANTS.items() for mutant in mutants],
)
def test_what_is_wrong_is_said(tmp_path, kind, old, new, expected):
    file = write(NAMES[kind], tmp_path, kind)
    code = file.read_text(encoding="utf-8")
    assert old in code
    more = LAYERS if kind == "network" else ""
    file.write_text(code.replace(old, new) + more, encoding="utf-8")
    found = failed(file)
    assert expected <= set(found), found
    assert all(len(sentence) > 20 for sentence in found.values())


TABLES = {
    "its own width": "def mine(classes: int) -> nn.Module:\n    return nn.Linear(3, classes)\n",
    "a width of images": "def mine(classes: int) -> nn.Module:\n    return nn.Linear(8, classes)\n",
    "any width": (
        "def mine(shape: tuple, classes: int) -> nn.Module:\n"
        "    return nn.Sequential(nn.Linear(*shape, 4), nn.ReLU(), nn.Linear(4, classes))\n"
    ),
}


@pytest.mark.parametrize("what", TABLES)
def test_a_network_for_tables_passes(tmp_path, what):
    (tmp_path / "mine.py").write_text(f"from torch import nn\n\n{TABLES[what]}", encoding="utf-8")
    assert failed(tmp_path / "mine.py") == {}


def test_a_network_that_takes_nothing_is_told_what_was_tried(tmp_path):
    code = "def mine(classes: int) -> nn.Module:\n    return nn.Bilinear(3, 3, classes)\n"
    (tmp_path / "mine.py").write_text(f"from torch import nn\n\n{code}", encoding="utf-8")
    found = failed(tmp_path / "mine.py")
    assert found and all("[n, 3, 32, 32]" in text and "[n, 10]" in text for text in found.values())


def test_an_error_is_told_with_its_line(tmp_path):
    file = write("mine", tmp_path, "problem")
    code = file.read_text(encoding="utf-8")
    file.write_text(code.replace("far = (1", "far = (one"), encoding="utf-8")
    line = code[: code.index("far = (1")].count("\n") + 1
    assert f"mine.py:{line}" in failed(file)["gradient"]


@pytest.mark.parametrize(
    "code",
    [
        "x = 1\n",
        "import undrift as ud\n\ndef mine(n) -> ud.Problem: ...\n",
        "import undrift as ud\n\ndef mine(n: int) -> ud.Problem: ...\n",
        "from torch import nn\n\ndef mine(classes: int, n: dict = {}) -> nn.Module: ...\n",
    ],
)
def test_files_that_cannot_be_checked(tmp_path, code):
    (tmp_path / "mine.py").write_text(code, encoding="utf-8")
    with pytest.raises(BadFile):
        checked(execute(tmp_path / "mine.py"))
