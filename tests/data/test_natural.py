"""Natural federations: what is embedded, what is known of it, and how it is used by name."""

import tomllib
from pathlib import Path

import numpy as np
import pytest

import undrift as ud
from undrift.core.params import BadParameters
from undrift.data.natural import PLACE, cards, federation
from undrift.problems.named import made

FREE = {"CC BY 4.0", "CC0 1.0", "BSD 3-Clause", "public domain"}
ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("name", cards())
def test_a_card_tells_what_is_there(name):
    card, found = cards()[name], federation(name)
    assert found.features.shape == (card.samples, card.features)
    assert len(found.columns) == card.features and len(set(found.columns)) == card.features
    assert len(found.parts) == card.clients == len(set(found.groups.tolist()))
    assert sorted(np.concatenate(found.parts)) == list(range(card.samples))
    assert card.licence in FREE and card.citation and card.source and card.prepared
    kinds = np.unique(found.target).tolist()
    assert not card.classes or kinds == list(range(len(card.classes)))
    assert (card.problem == "ridge") == (not card.classes)
    assert name in (PLACE / "LICENCES.txt").read_text(encoding="utf-8")


@pytest.mark.parametrize("name", cards())
def test_features_are_scaled_over_all_clients_and_gaps_are_marked(name):
    found, raw = federation(name), federation(name, scaled=False)
    width = raw.features.shape[1]
    gaps = np.isnan(raw.features)
    assert np.isfinite(found.features).all()
    for k in range(width):
        measured = found.features[~gaps[:, k], k]
        assert abs(measured.mean()) < 1e-9 and measured.std() == pytest.approx(1)
        assert (found.features[gaps[:, k], k] == 0).all()
    often = np.flatnonzero(gaps.mean(0) > 0.1)
    np.testing.assert_array_equal(found.features[:, width:], gaps[:, often])
    assert found.columns[width:] == tuple(f"{raw.columns[k]} missing" for k in often)
    if found.card.classes:
        np.testing.assert_array_equal(found.target, raw.target)
    else:
        assert abs(found.target.mean()) < 1e-9 and found.target.std() == pytest.approx(1)
        assert np.corrcoef(found.target, raw.target)[0, 1] == pytest.approx(1)


def test_the_hospitals_are_those_of_the_source():
    heart = federation("heart", scaled=False)
    names = [str(heart.groups[part[0]]) for part in heart.parts]
    assert names == ["cleveland", "hungarian", "switzerland", "va"]
    assert [len(part) for part in heart.parts] == [303, 294, 123, 200]
    assert [int(heart.target[part].sum()) for part in heart.parts] == [139, 106, 115, 149]
    cholesterol = heart.features[:, heart.columns.index("chol")]
    assert np.isnan(cholesterol[heart.parts[2]]).all() and not (cholesterol == 0).any()


def test_how_much_clients_differ():
    penguins, exercises = federation("penguins"), federation("exercises")
    adelie = [44 / 167, 56 / 124, 1.0]
    ill = [139 / 303, 106 / 294, 115 / 123, 149 / 200]
    assert federation("heart").shares() == pytest.approx(ill)
    assert penguins.shares() == pytest.approx(adelie)
    assert exercises.between()[0] < 0.01 < 0.3 < penguins.between()[0] < 0.6
    radon = federation("radon")
    means = np.array([radon.target[part].mean() for part in radon.parts])
    assert radon.shares() == pytest.approx(means)
    sizes = np.array([len(part) for part in radon.parts])
    assert radon.between()[0] == pytest.approx((sizes * means**2).sum() / sizes.sum())


@pytest.mark.parametrize("name", cards())
def test_by_name_clients_are_the_natural_ones_and_the_optimum_is_known(name):
    card = cards()[name]
    named = made(f"{card.problem}-{name}")
    assert (named.clients, named.partition, named.decided) == (card.clients, "natural", [])
    problem = named.build()
    assert problem.clients == card.clients
    assert problem.samples == [len(part) for part in federation(name).parts]
    assert problem.metrics(problem.optimum)["grad_norm"] < 1e-12
    run = ud.run(ud.GD(lr="theory"), problem, rounds=2)
    assert run.history["gap"][2] < run.history["gap"][0]


def test_another_partition_pools_the_samples():
    named = made("logistic", data="heart", partition="by-label", shards=1)
    assert (named.clients, named.decided) == (10, ["split"])
    assert made("logistic", data="heart", partition="iid", clients=3).build().clients == 3
    assert made("logistic").partition == "dirichlet"


@pytest.mark.parametrize(
    ("name", "given", "field", "words"),
    [
        ("logistic", {"data": "heart", "clients": 5}, "clients", "4 clients of its own"),
        ("logistic", {"data": "radon"}, "data", "unknown data set for logistic"),
        ("logistic", {"partition": "natural"}, "partition", "has no clients of its own"),
        ("ridge", {"data": "radn"}, "data", "did you mean radon"),
    ],
)
def test_what_does_not_fit_is_refused(name, given, field, words):
    with pytest.raises(BadParameters) as caught:
        made(name, **given)
    assert words in caught.value.problems[field]


def test_unknown_names_get_the_nearest():
    with pytest.raises(ValueError, match="did you mean heart"):
        federation("hart")


def test_the_wheel_has_the_data():
    """Each file matches a pattern of package data, and all together are small."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    patterns = settings["tool"]["setuptools"]["package-data"]["undrift"]
    package = PLACE.parents[1]
    packed = {path for pattern in patterns for path in package.glob(pattern)}
    files = {path for path in PLACE.iterdir() if path.is_file()}
    assert {path.stem for path in files if path.suffix == ".npz"} == set(cards())
    assert files <= packed and sum(path.stat().st_size for path in files) < 1_500_000
