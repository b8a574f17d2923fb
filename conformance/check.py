"""Compare a library's trajectories with the vectors beside this file; needs NumPy alone."""

import json
from pathlib import Path

import numpy as np

HERE = Path(__file__).parent
SETTINGS = json.loads((HERE / "settings.json").read_text(encoding="utf-8"))
METHODS = SETTINGS["methods"]
PROBLEMS = ("quadratic", "cohorts", "logistic")


def load(problem):
    """Arrays of a problem: x0, cohorts [rounds, members], the clients' data, and the points."""
    with np.load(HERE / f"{problem}.npz", allow_pickle=False) as file:
        return dict(file)


def gradient(data, client, x):
    """The full gradient of a client's function at x."""
    if "H" in data:
        return data["H"][client] @ x - data["q"][client]
    a, b = data["A"][client], data["b"][client]
    return -a.T @ (b / (1 + np.exp(b * (a @ x)))) / len(b) + data["l2"] * x


def check(problem, method, points, tolerance=1e-9):
    """Raise AssertionError at the first round whose point, [rounds + 1, d], is another one."""
    expected = load(problem)[method]
    points = np.asarray(points)
    assert points.shape == expected.shape, f"{points.shape} where {expected.shape} is expected"
    off = np.abs(points - expected).max(1)
    wrong = np.flatnonzero(~(off <= tolerance * np.abs(expected).max()))
    assert not wrong.size, f"{method} on {problem}: off by {off[wrong[0]]:.2g} in round {wrong[0]}"
