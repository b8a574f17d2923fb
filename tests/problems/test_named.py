"""Problems by name."""

import dataclasses
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from undrift import problems
from undrift.core.params import BadParameters, hints
from undrift.core.streams import Streams
from undrift.data import partition
from undrift.data.tables import load
from undrift.objectives import CrossEntropy
from undrift.problems import named as catalog

BASE = {
    "fedred": {"dim": 30},
    "logistic": {"partition": "dirichlet-balanced"},
    "softmax-synthetic": {"clients": 4, "samples": 6, "features": 4, "classes": 3},
    "softmax": {"partition": "dirichlet-balanced"},
    "ridge": {"partition": "iid"},
}
CHANGES: dict[str, dict[str, Any]] = {
    "quadratic": {
        "clients": 3,
        "dim": 4,
        "mu": 0.5,
        "L": 20.0,
        "heterogeneity": 0.5,
        "spread": 0.5,
        "seed": 1,
    },
    "fedred": {"kind": "convex", "clients": 3, "components": 4, "dim": 31, "seed": 1},
    "fedcet": {"hessians": "different", "clients": 3, "samples": 4, "dim": 5, "seed": 1},
    "least-squares": {"clients": 3, "rows": 40, "dim": 5, "seed": 1},
    "logistic": {
        "data": "digits",
        "clients": 3,
        "partition": "iid",
        "beta": 0.1,
        "l2": 0.5,
        "intercept": True,
        "seed": 1,
    },
    "softmax": {
        "data": "exercises",
        "clients": 5,
        "partition": "iid",
        "beta": 0.1,
        "l2": 0.5,
        "seed": 1,
    },
    "ridge": {
        "data": "vowels",
        "clients": 5,
        "partition": "by-label",
        "l2": 0.5,
        "intercept": True,
        "seed": 1,
    },
    "softmax-synthetic": {
        "clients": 3,
        "samples": 4,
        "features": 5,
        "classes": 2,
        "alpha": 5.0,
        "beta": 0.0,
        "sizes": "lognormal",
        "l2": 0.5,
        "seed": 1,
    },
    "images": {
        "train": 500,
        "test": 100,
        "model": "mlp",
        "hidden": 16,
        "projection": 7,
        "clients": 3,
        "partition": "iid",
        "beta": 0.1,
        "seed": 1,
        "split_seed": 1,
        "start_seed": 1,
    },
}
ELSEWHERE = {
    "images": {"data", "augment", "precision", "train_metrics"},
    "logistic": {"labels", "features", "label", "group", "standardise"},
    "quadratic": {"noise"},
    "ridge": {"beta"},
}


def test_listing_needs_neither_torch_nor_numpy():
    script = (
        "import sys, undrift.problems as p, undrift.problems.named as c\n"
        "[(n, c.registry[n].title, c.registry[n]()) for n in p.registry]; p.find('logistic-a9a')\n"
        "assert not {'torch', 'numpy', 'scipy', 'sklearn'} & set(sys.modules), 'heavy import'"
    )
    path = os.pathsep.join(p for p in sys.path if p)
    subprocess.run(
        [sys.executable, "-c", script], check=True, env={**os.environ, "PYTHONPATH": path}
    )


def test_public_names():
    assert all(getattr(problems, name) is not None for name in problems.__all__)
    assert {"LeastSquares", "Logistic", "Neural", "Quadratic", "Softmax"} <= set(dir(problems))
    with pytest.raises(AttributeError, match="Cubic"):
        _ = problems.Cubic


@pytest.mark.parametrize("name", catalog.registry)
def test_every_name_builds(name):
    kind = catalog.registry[name]
    assert kind.name == name and kind.title and "\n" not in kind.title
    spec = kind(**BASE.get(name, {}))
    problem = spec.build()
    assert problem.clients == spec.clients
    assert np.isfinite(problem.metrics(problem.start())["loss"])
    assert kind(**dataclasses.asdict(spec)) == spec


@pytest.mark.parametrize("name", catalog.registry)
def test_parameters_reach_the_problem(name):
    changes, base = CHANGES[name], BASE.get(name, {})
    assert changes.keys() == hints(catalog.registry[name]).keys() - {
        "folder",
        "shards",
    } - ELSEWHERE.get(name, set())
    plain = _print(catalog.build(name, **base))
    for field, value in changes.items():
        assert _print(catalog.build(name, **{**base, field: value})) != plain, field


def _print(problem):
    return (problem.samples, problem.dim, problem.constants, problem.metrics(problem.start() + 1))


def test_logistic_partitions_come_from_the_data_stream():
    table = load("digits")
    splits = {
        "iid": partition.iid(table.labels, 7, Streams(5).at("data")),
        "dirichlet": partition.dirichlet(table.labels, 7, Streams(5).at("data"), beta=0.4),
        "dirichlet-balanced": partition.dirichlet_balanced(
            table.labels, 7, Streams(5).at("data"), beta=0.4
        ),
        "by-label": partition.by_label(table.labels, 7, Streams(5).at("data"), shards=3),
    }
    for name, parts in splits.items():
        got = catalog.build(
            "logistic-digits", clients=7, partition=name, beta=0.4, shards=3, seed=5
        )
        want = problems.Logistic(table.features, table.labels, parts)
        torch.testing.assert_close(got.rows, want.rows, rtol=0, atol=0)
        assert got.samples == want.samples


def test_shorthand():
    assert catalog.find("logistic-german.numer_scale") == (
        catalog.LogisticRegression,
        {"data": "german.numer_scale"},
    )
    assert catalog.find("least-squares") == (catalog.RandomLeastSquares, {})
    assert catalog.find("images-tiny-imagenet") == (catalog.Images, {"data": "tiny-imagenet"})
    assert catalog.build("logistic-digits", clients=3).dim == 64


@pytest.mark.parametrize(
    ("name", "near"),
    [
        ("quadratics", "quadratic"),
        ("logistic-", "logistic"),
        ("fedre", "fedred"),
        ("image", "images"),
    ],
)
def test_unknown_names(name, near):
    with pytest.raises(ValueError, match=f"unknown problem .*did you mean {near}"):
        catalog.find(name)


REAL = os.environ.get("UNDRIFT_DATA", "")


@pytest.mark.skipif(
    not (REAL and (Path(REAL) / "svmlight").is_dir()), reason="UNDRIFT_DATA has no svmlight folder"
)
def test_real_logistic():
    problem = catalog.build("logistic-phishing", clients=5, beta=0.5)
    assert sum(problem.samples) == 11055 and problem.l2 == 1 / 11055
    assert problem.metrics(problem.optimum)["grad_norm"] < 1e-13
    v = torch.randn(5, problem.dim, dtype=torch.float64)
    y = problem.at().solve(v, 0.1)
    assert (problem.at().grad(y) + 0.1 * y - v).norm() < 1e-12


def test_precision_reaches_the_network():
    assert catalog.build("images", precision="bf16").precision == "bf16"
    assert catalog.Images(precision="bf16").precision == "bf16"
    assert catalog.RandomQuadratic().precision is None


@pytest.mark.parametrize("name", catalog.registry)
def test_a_problem_with_a_loss_of_its_own_takes_no_objective(name):
    kind = catalog.registry[name]
    assert kind.objectives == (kind.judged == "accuracy") == (name == "images")
    if not kind.objectives:
        with pytest.raises(BadParameters) as caught:
            kind().build(CrossEntropy())
        assert set(caught.value.problems) == {"objective"}
