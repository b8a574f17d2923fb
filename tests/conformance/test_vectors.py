"""The vectors are the transcriptions', undrift follows them, and a wrong method does not."""

import numpy as np
import pytest
import torch
from conformance.check import METHODS, PROBLEMS, SETTINGS, check, gradient, load

import undrift as ud
from conformance import make
from undrift.engines import Simulate
from undrift.problems.quadratic import Quadratic

ROUNDS, STEPS, LR = (SETTINGS[name] for name in ("rounds", "steps", "lr"))
OWN = {"FedSpeed": {"normalise": False}}


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    folder = tmp_path_factory.mktemp("vectors")
    make.main(folder)
    return folder


@pytest.mark.parametrize("problem", PROBLEMS)
def test_they_are_written_again(written, problem):
    with np.load(written / f"{problem}.npz", allow_pickle=False) as file:
        again, kept = dict(file), load(problem)
    assert again.keys() == kept.keys() >= METHODS.keys()
    for name, array in again.items():
        np.testing.assert_allclose(array, kept[name], rtol=0, atol=1e-13)
    assert (written / "settings.json").read_text() == (make.HERE / "settings.json").read_text()


def problem_of(data):
    if "H" in data:
        return Quadratic(data["H"], data["q"])
    clients, samples, dim = data["A"].shape
    parts = np.arange(clients * samples).reshape(clients, samples)
    features, labels = data["A"].reshape(-1, dim), data["b"].ravel()
    return ud.problems.Logistic(features, labels, list(parts), l2=float(data["l2"]))


@pytest.mark.parametrize("problem", PROBLEMS)
@pytest.mark.parametrize("method", METHODS)
def test_undrift_follows_them(method, problem):
    data = load(problem)
    members = data["cohorts"].shape[1]
    engine = Simulate(
        getattr(ud, method)(lr=LR, **METHODS[method], **OWN.get(method, {})),
        problem_of(data),
        steps=STEPS,
        cohort=members,
        seed=SETTINGS["seed"],
        x0=torch.tensor(data["x0"]),
    )
    points = [engine.x.numpy().copy()]
    for _ in range(ROUNDS):
        engine.run_round()
        points.append(engine.x.numpy().copy())
    check(problem, method, points, tolerance=1e-12)


def test_a_flipped_sign_is_found():
    """SCAFFOLD whose c_i moves the wrong way: the first round is right, the second is not."""
    data = load("quadratic")
    x, c = data["x0"], 0 * data["x0"]
    variates, points = np.zeros((3, len(x))), [x]
    for _ in range(ROUNDS):
        ends = []
        for i in range(3):
            y = x
            for _ in range(STEPS):
                y = y - LR * (gradient(data, i, y) - variates[i] + c)
            variates[i] += -c - (x - y) / (STEPS * LR)
            ends.append(y)
        x = x + METHODS["Scaffold"]["server_lr"] * (np.mean(ends, 0) - x)
        c = variates.mean(0)
        points.append(x)
    with pytest.raises(AssertionError, match="in round 2"):
        check("quadratic", "Scaffold", points)
