"""The notebooks of the site run, show what was saved with them, and say what is true of it.

Their cells run in this process, as a kernel would run them; tests marked ``whole`` start a kernel.
"""

import ast
import base64
import contextlib
import io
import itertools
import json
import linecache
import math
import re
import shlex
import sys
import warnings
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
import torch
from matplotlib import pyplot as plt
from matplotlib.figure import Figure
from tools import notebooks

from tests.docs.test_blocks import folder  # noqa: F401
from undrift.cli import main

NOTEBOOKS = {file.stem: file for file in sorted(notebooks.FOLDER.glob("*.ipynb"))}
LONG = {"fair-comparison", "first-steps"}
"""Notebooks that take more than about ten seconds: `make test-all` runs them."""
PICTURE, FILE = 60_000, 250_000
"""Bytes of a picture, and of a notebook, at most."""
TIME = re.compile(r"\d+(?:\.\d+)? s\b|seconds=[\d.e-]+|-{2,}")
"""What differs from run to run: seconds, and the width of their column."""
NUMBER = re.compile(r"\d[\d,]*(?:\.\d+)?(?:e[+-]?\d+)?")
TAG = re.compile(r"<[a-z/][^>]*>")
PNG = re.compile(r"data:image/png;base64,([^\"]+)")
Shown = list[dict[str, str]]
"""What a cell shows, one after another: texts by their kinds."""


def code(name: str) -> list[dict]:
    book = json.loads(NOTEBOOKS[name].read_text(encoding="utf-8"))
    return [cell for cell in book["cells"] if cell["cell_type"] == "code"]


def saved(cell: dict) -> Shown:
    return [
        {one["name"]: "".join(one["text"])}
        if one["output_type"] == "stream"
        else {kind: "".join(text) for kind, text in one["data"].items()}
        for one in cell["outputs"]
    ]


def bundle(value: object) -> dict[str, str]:
    """A value as a notebook shows it."""
    shown = {"text/plain": repr(value)}
    if isinstance(value, Figure):
        shown["image/png"] = ""
    if (html := getattr(value, "_repr_html_", None)) and (text := html()):
        shown["text/html"] = text
    return shown


def typed(command: str) -> None:
    """A line after ``!``, whose errors a notebook prints too."""
    program, *words = shlex.split(command)
    assert program == "undrift"
    with contextlib.redirect_stderr(sys.stdout):
        assert main(words) == 0


def performed(source: str, where: str, names: dict[str, object]) -> Shown:
    """Run a cell: what it prints, its last value, and the figures that it drew."""
    source = re.sub(r"^!(.+)$", r"typed('\1')", source, flags=re.MULTILINE)
    linecache.cache[where] = len(source), None, source.splitlines(True), ""
    body, value = ast.parse(source).body, None
    shows = isinstance(body[-1], ast.Expr) and not source.rstrip().endswith(";")
    with contextlib.redirect_stdout(io.StringIO()) as said:
        exec(compile(ast.Module(body[:-1] if shows else body, []), where, "exec"), names)
        if shows:
            value = eval(compile(ast.Expression(body[-1].value), where, "eval"), names)
    shown = [{"stdout": said.getvalue()}] if said.getvalue() else []
    figures = [plt.figure(k) for k in plt.get_fignums()]
    shown += [bundle(one) for one in (value, *figures) if one is not None]
    plt.close("all")
    return shown


def parted(text: str) -> tuple[list[str], list[float]]:
    """A text without times, tags and pictures: its words, and its numbers."""
    text = TIME.sub("", TAG.sub(" ", text))
    numbers = [float(found.replace(",", "")) for found in NUMBER.findall(text)]
    return NUMBER.sub("#", text).split(), numbers


def differences(before: Shown, now: Shown) -> list[str]:
    """Where two outputs differ in kind, in words, or in numbers by more than a twentieth."""
    wrong = []
    for one, other in itertools.zip_longest(before, now, fillvalue={}):
        if one.keys() != other.keys():
            return [f"{[*one]} was saved, and {[*other]} is shown"]
        for kind in one.keys() - {"image/png"}:
            (words, numbers), (others, found) = parted(one[kind]), parted(other[kind])
            near = all(map(close, numbers, found))
            if words != others or len(numbers) != len(found) or not near:
                wrong.append(f"{one[kind][:2000]}\n-> {other[kind][:2000]}")
    return wrong


def close(one: float, other: float) -> bool:
    """Gaps of a run that has converged are rounding errors."""
    return math.isclose(one, other, rel_tol=0.05, abs_tol=1e-9)


def first_steps(gap, runs, right, hospitals, **_):
    assert abs(gap[50] / gap[200] - 1) < 0.05 < abs(gap[20] / gap[200] - 1)
    needed = {label: run.history["gap"] <= 1e-6 * gap[0] for (label, _), run in runs.items()}
    assert not needed.pop("FedAvg").any() and all(ends.any() for ends in needed.values())
    sent = {label: run.history["vectors"][1] for (label, _), run in runs.items()}
    assert sent["SCAFFOLD"] == 4 and sent["FedCET"] == sent["Scaffnew"] == 2
    patients = {label: 920 * runs[label].history.last["accuracy"] for label in sent}
    assert round(patients["FedAvg"] - patients["SCAFFOLD"]) == 3
    own, shared = np.array([np.mean(right[name], axis=0) for name in hospitals]).T
    last = hospitals.index("switzerland")
    assert all(alone >= common for alone, common in right["switzerland"])
    assert 0.055 < own[last] - shared[last] < 0.07
    assert np.abs(np.delete(own - shared, last)).max() < 0.01


def own_network(runs, run, each, risk, late, aside, parts, names, network, **_):
    assert {one.status for one in runs.values()} == {"early"}
    assert runs["FedAvg"].best.value > runs["SCAFFOLD"].best.value
    assert abs(run.history.last["auc"] - run.best.value) < 0.005
    assert 0.74 < 1 - late.mean() < 0.76 and run.history.last["accuracy"] < 0.7
    aucs = [auc for auc, rows in zip(each["auc"], parts, strict=True) if len(rows) > 500]
    assert max(aucs) - min(aucs) < 0.15 < np.nanmax(each["auc"]) - np.nanmin(each["auc"])
    assert [str(name) for name, auc in zip(names, each["auc"], strict=True) if auc != auc] == [
        "SkyWest Airlines Inc."
    ]
    assert next(network.parameters()).equal(untrained())


def untrained() -> torch.Tensor:
    torch.manual_seed(0)
    return torch.nn.Linear(12, 32).weight


def fair_comparison(shared, found, runs, **_):
    def ends(runs):
        gaps = {label: [] for label, _ in runs}
        for (label, _), run in runs.items():
            gaps[label].append(run.history.last["gap"])
        return {label: np.mean(some) for label, some in gaps.items()}

    before, after = ends(shared), ends(runs)
    assert before["SCAFFOLD"] < before["FedAvg"] < before["FedAvgM"]
    assert after["SCAFFOLD"] < after["FedAvgM"] < after["FedAvg"]
    assert not any(one.open_ends for one in found.values())
    best = {label: one.best["lr"] for label, one in found.items()}
    assert abs(best["SCAFFOLD"] / best["FedAvgM"] - 8) < 1e-6
    at = {label: {} for label in found}
    for label, one in found.items():
        for tried in one.tried:
            (step,) = dict(tried.setting).values()
            at[label].setdefault(round(step, 4), []).append(tried.value)
    far = {label: np.mean(values.pop(1.6)) for label, values in at.items()}
    assert min(far.values()) > 0.1
    for step in at["FedAvg"]:
        leader = min(at, key=lambda label: np.mean(at[label][step]))
        assert leader == ("SCAFFOLD" if step > 0.09 else "FedAvgM"), step
    apart = runs.against("FedAvg")
    assert apart["FedAvgM"].final.low < 0 < apart["FedAvgM"].final.high
    assert apart["SCAFFOLD"].final.high < 0 > runs.against("FedAvgM")["SCAFFOLD"].final.high
    sent = {label: run.history.last["vectors"] for (label, _), run in runs.items()}
    assert sent == {"FedAvg": 120, "FedAvgM": 120, "SCAFFOLD": 240}
    assert Path("runs/comparison.pdf").read_bytes().startswith(b"%PDF")


def write_a_method(plain, known, right, wrong, runs, found, **_):
    assert (plain.history["gap"] == known.history["gap"]).all()
    assert right < 1e-12 and 1e-6 < wrong < 1e-3
    rounds = {}
    for (label, _), run in runs.items():
        gap = run.history["gap"]
        rounds[label] = (gap <= 1e-6 * gap[0]).argmax()
    assert 2 * rounds["Rolling"] < rounds["SCAFFOLD"] and rounds["FedAvg"] == 0
    sent = {run.history.last["vectors"] for run in (runs["SCAFFOLD"], runs["Rolling"])}
    assert len(sent) == 1
    assert found["SCAFFOLD"].best["lr"] == pytest.approx(1)
    assert found["beta 0.5"].best["lr"] == pytest.approx(0.5)


HOLDS = {
    "first-steps": first_steps,
    "own-network": own_network,
    "fair-comparison": fair_comparison,
    "write-a-method": write_a_method,
}
"""What the texts say of the results."""
SOME = [
    pytest.param(name, marks=pytest.mark.whole if name in LONG else (), id=name)
    for name in NOTEBOOKS
]


@pytest.mark.timeout(notebooks.LIMIT)
@pytest.mark.parametrize("name", SOME)
def test_a_notebook_shows_what_was_saved_with_it(name, folder, monkeypatch, capsys):  # noqa: F811
    module = ModuleType("of_a_notebook")
    monkeypatch.setitem(sys.modules, module.__name__, module)
    module.typed = typed
    plt.close("all")  # what another test has left open is not this notebook's
    for number, cell in enumerate(code(name), 1):
        with warnings.catch_warnings():
            for kind in (UserWarning, RuntimeWarning):
                warnings.simplefilter("error", kind)
            where = f"{name}.ipynb, cell {number}"
            now = performed("".join(cell["source"]), where, vars(module))
        assert differences(saved(cell), now) == [], where
    assert capsys.readouterr().err == ""
    HOLDS[name](**vars(module))


@pytest.mark.whole
@pytest.mark.timeout(notebooks.LIMIT)
@pytest.mark.parametrize("name", NOTEBOOKS)
def test_a_kernel_shows_what_was_saved(name):
    if not all(map(find_spec, ("nbclient", "ipykernel"))):
        pytest.skip("make docs has not installed what runs notebooks")
    book = notebooks.executed(NOTEBOOKS[name])
    now = [saved(cell) for cell in book.cells if cell.cell_type == "code"]
    found = [differences(*both) for both in zip(map(saved, code(name)), now, strict=True)]
    assert [one for one in found if one] == []


@pytest.mark.parametrize("name", NOTEBOOKS)
def test_a_saved_notebook_is_whole_and_small(name):
    text = NOTEBOOKS[name].read_text(encoding="utf-8")
    book, found = json.loads(text), code(name)
    assert book["metadata"] == notebooks.ABOUT
    assert re.match(r"# [^\n]+\n\n\*For [^*]+; it takes about \w+ seconds\.\*\n", head(book))
    assert 8 <= len(found) <= 16
    assert [cell["execution_count"] for cell in found] == [*range(1, len(found) + 1)]
    shown = [one for cell in found for one in saved(cell)]
    assert not any("stderr" in one for one in shown)
    pictures = [one["image/png"] for one in shown if "image/png" in one] + PNG.findall(text)
    assert pictures and max(len(base64.b64decode(one)) for one in pictures) < PICTURE
    assert len(text) < FILE
    assert not re.search(r"(?<![\w.])/(home|Users|root|tmp|work|usr|opt)/|[A-Z]:\\\\", text)


def head(book: dict) -> str:
    return "".join(book["cells"][0]["source"])


def test_every_notebook_is_told_apart():
    assert HOLDS.keys() == NOTEBOOKS.keys() >= LONG


@pytest.mark.parametrize(
    "now",
    [
        [],
        [{"stderr": "gap 1.0e-03 in 2.0 s"}],
        [{"stdout": "gap 2.0e-03 in 2.0 s"}],
        [{"stdout": "loss 1.0e-03 in 2.0 s"}],
        [{"stdout": "gap 1.0e-03 in 2.0 s"}, {"stdout": "more"}],
    ],
)
def test_what_is_stale_is_found(now):
    before = [{"stdout": "gap 1.0e-03 in 1.5 s"}]
    assert differences(before, now)
    assert not differences(before, [{"stdout": "gap  1.01e-03 in 17.5 s"}])
