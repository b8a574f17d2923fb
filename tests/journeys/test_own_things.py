"""A user's own method, network, problem and data, from what ``undrift new`` writes to a report."""

import pytest

SPEC = """\
name = "own"
rounds = 4
steps = 2
{top}
[problem]
{problem}
[[method]]
name = "FedAvg"
lr = 0.05
{method}
"""
PROBLEMS = {
    "method": ("", 'name = "quadratic"', '[[method]]\nfile = "mine.py"\nname = "Mine"\nlr = 0.05'),
    "problem": ("", 'file = "mine.py"\nname = "mine"', ""),
    "network": ("batch = 8", 'name = "images"\nclients = 4\ntrain = 80\ntest = 20', ""),
}
NAMES = {"method": "Mine", "problem": "mine", "network": "mine"}


@pytest.mark.slow
@pytest.mark.parametrize("kind", PROBLEMS)
def test_new_check_run_report(kind, typed):
    typed(f"undrift new {kind} {NAMES[kind]}")
    assert "passed" in typed("undrift check mine.py")
    top, problem, method = PROBLEMS[kind]
    text = SPEC.format(top=top, problem=problem, method=method)
    if kind == "network":
        text += '\n[network]\nfile = "mine.py"\nname = "mine"\n'
    (typed.folder / "own.toml").write_text(text, encoding="utf-8")
    typed("undrift run own.toml --check")
    assert "all rounds run" in typed("undrift run own.toml")
    typed("undrift report runs/own")
    assert (typed.folder / "runs/own/report.html").is_file()


PROGRAM = """\
import numpy as np, torch, undrift as ud
from torch import nn

draw = np.random.default_rng(0)
wards = [(torch.tensor(draw.normal(k, 1, (30, 5)), dtype=torch.float32), torch.arange(30) % 2)
         for k in range(3)]
problem = ud.Neural(nn.Sequential(nn.Linear(5, 8), nn.Tanh(), nn.Linear(8, 2)), wards, test=0.2)
run = ud.run(ud.Scaffold(lr=0.1), problem, rounds=5, epochs=1, batch=8, save="mine")
print(run.status, type(run.module()).__name__)
again = ud.run(ud.Scaffold(lr=0.1), problem, rounds=5, epochs=1, batch=8, save="mine")
assert torch.equal(run.x, again.x)
"""


def test_a_network_on_data_of_ones_own_in_python(typed):
    (typed.folder / "program.py").write_text(PROGRAM, encoding="utf-8")
    assert "done Sequential" in typed("python program.py")
    assert "Scaffold" in typed("undrift compare mine")
