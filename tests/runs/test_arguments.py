"""``undrift.run`` in Python refuses what specs refuse, in the same words, and all of it at once."""

import dataclasses
import inspect
import typing

import numpy as np
import pytest
import torch

import undrift as ud
from undrift._device import absent
from undrift.check.federations import least_squares, quadratic
from undrift.core import BadParameters
from undrift.core.cohort import Sampling
from undrift.core.options import RunOptions as Setting
from undrift.core.params import hints
from undrift.problems import build
from undrift.runs.api import prepare
from undrift.spec.errors import BadSpec
from undrift.spec.reader import parse
from undrift.spec.schema import Settings

METHOD = ud.FedAvg(lr=0.01)
SMALL = {"clients": 4, "dim": 3}


def wrong(method=METHOD, problem="quadratic", rounds=2, **setting):
    """What ``ud.run`` complains about."""
    with pytest.raises(BadParameters) as caught:
        ud.run(method, problem, rounds=rounds, **setting)
    assert str(caught.value) == "\n".join(f"run: {text}" for text in caught.value.problems.values())
    return caught.value.problems


@pytest.mark.parametrize(
    "name, value",
    [
        ("rounds", -1), ("rounds", 0), ("rounds", 2.5), ("rounds", True), ("every", 0),
        ("every", 1.0), ("steps", 0), ("steps", -3), ("steps", [1, 0, 1]), ("steps", "4"),
        ("batch", 0), ("batch", -1), ("epochs", 0), ("engine", "ray"), ("dtype", "xx"),
        ("dtype", "float16"), ("device", "gpu"), ("aggregation", "size"), ("schedule", 1.5),
        ("cohort", 0), ("cohort", 2.5), ("training.clip", 0.0), ("training.clip_scope", "all"),
        ("training.weight_decay", -1.0),
    ],
)  # fmt: skip
def test_the_words_are_those_of_specs(name, value):
    table, _, field = name.rpartition(".")
    found = wrong(**{table: {field: value}} if table else {name: value})
    shown = repr(value).replace("'", '"').replace("True", "true")
    top = f"{name} = {shown}\n" + "rounds = 2\n" * (name != "rounds")
    with pytest.raises(BadSpec) as caught:
        problem, method = '[problem]\nname = "quadratic"', '[[method]]\nname = "FedAvg"\nlr = 0.01'
        parse(f'name = "a"\n{top}{problem}\n{method}\n')
    texts = {c.text for c in caught.value.complaints}
    assert set(found) == {name} and found[name] in texts


@pytest.mark.parametrize("problem", ["quadratic", quadratic()])
def test_settings_of_specs_are_told_what_python_has(problem):
    given = {"best": "auc", "stop": {"patience": 3}, "per_client": True, "vary": ["split"]}
    found = wrong(problem=problem, **given)
    assert "ud.Goal(" in found["best"] and "ud.EarlyStopping(" in found["stop"]
    assert "ud.PerClient()" in found["per_client"] and "ud.run_spec" in found["vary"]


def test_other_values_that_are_not_right():
    assert (
        "whole number >= 0" in wrong(seed="a")["seed"]
        and "whole number >= 0" in wrong(seed=-1)["seed"]
    )
    assert "one for each" in wrong(steps=[])["steps"]
    assert wrong(dtype=torch.float16)["dtype"] == wrong(dtype="float16")["dtype"]
    assert (
        "did you mean sampling?" in wrong(cohort={"size": 3, "samplin": "fixed"})["cohort.samplin"]
    )
    assert "size is missing" in wrong(cohort={"pool": 3})["cohort.size"]
    assert "did you mean quadratic?" in wrong(problem="quadratik")["problem"]
    with pytest.raises(ValueError, match="store = 'disk' is not allowed"):
        ud.run(METHOD, "quadratic", rounds=2, engine={"store": "disk"})
    with pytest.raises(ValueError, match="a cohort of 50 is more than the 4 clients"):
        ud.run(METHOD, quadratic(), rounds=2, cohort=50)
    with pytest.raises(ValueError, match="3 numbers of local steps were given for 4 clients"):
        ud.run(METHOD, quadratic(), rounds=2, steps=[1, 2, 3])


def test_all_mistakes_of_a_call_are_told_at_once():
    found = wrong(
        rounds=-1, every=0, steps=0, batch=-1, engine="ray", dtype="xx", seed="a", clients=0, dims=3
    )
    assert set(found) == {
        "rounds",
        "every",
        "steps",
        "batch",
        "engine",
        "dtype",
        "seed",
        "clients",
        "dims",
    }


def test_a_device_that_is_not_here(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert (
        wrong(device="cuda")["device"]
        == absent("cuda")
        == "device = 'cuda' is not on this machine; use 'cpu'"
    )
    assert wrong(device=torch.device("cuda:1"))["device"] == absent("cuda:1")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    assert (
        absent("cuda") is absent("cuda:0") is absent("cpu") is None and absent("cuda:1") is not None
    )


def test_steps_or_epochs():
    assert "not both" in wrong(steps=3, epochs=2, batch=4)["epochs"]
    assert "need mini-batches" in wrong(epochs=2)["epochs"]
    assert prepare(METHOD, least_squares(), epochs=2, batch=3).steps == [6] * 5


@pytest.mark.parametrize(
    "x0", [[1.0, 2.0], np.ones((1, 3)), 1.0, "start", [1.0, None, 2.0], [1.0, float("nan"), 0.0],
           [1.0, float("inf"), 0.0], [1j, 0, 0]],
)  # fmt: skip
def test_first_points_that_are_not_points(x0):
    for start in (ud.Simulate, ud.Wire, prepare):
        with pytest.raises(BadParameters) as caught:
            start(METHOD, quadratic(), x0=x0)
        assert set(caught.value.problems) == {"x0"}


def test_the_method_and_the_problem():
    named, ready = "quadratic", quadratic()
    for problem in (named, ready):
        for method in ("FedAvg", ud.FedAvg, None):
            assert set(wrong(method, problem)) == {"method"}
        assert set(wrong(problem, METHOD)) == {"method", "problem"}
    for problem in (ud.problems.Quadratic, {}, METHOD):
        assert set(wrong(problem=problem)) == {"problem"}


@pytest.mark.parametrize("label", ["", "  ", "a\nb", "a\x1b[31m", "a\tb", "\u202etfel"])
def test_labels_that_no_table_can_show_are_refused(label):
    assert wrong({"FedAvg": METHOD, label: METHOD}).keys() == {"method"}
    assert ud.run({"a < b & ç": METHOD}, "quadratic", rounds=1)["a < b & ç"].status == "done"


def test_misspelt_names_are_looked_for_among_settings_and_parameters():
    assert "did you mean steps?" in wrong(step=8)["step"]
    assert "did you mean clients?" in wrong(client=8)["client"]
    assert "did you mean steps?" in wrong(problem=quadratic(), step=8)["step"]
    assert wrong(problem=quadratic(), clients=8).keys() == {"clients"}


@pytest.mark.parametrize("engine", [ud.Simulate, ud.Wire])
def test_engines_check_what_they_are_given(engine):
    with pytest.raises(BadParameters) as caught:
        engine(
            "FedAvg",
            quadratic(),
            steps=0,
            batch=-1,
            seed="a",
            cohort=0,
            step=4,
            training={"clip": -1},
        )
    assert set(caught.value.problems) == {
        "method",
        "steps",
        "batch",
        "seed",
        "cohort",
        "training.clip",
        "step",
    }
    assert "did you mean steps?" in caught.value.problems["step"]
    with pytest.raises(BadParameters) as caught:
        engine(quadratic(), METHOD)
    assert set(caught.value.problems) == {"method", "problem"}
    with pytest.raises(BadParameters, match="not both"):
        engine(METHOD, least_squares(), steps=2, epochs=2, batch=3)


def test_types_of_numpy_and_tables_of_its_numbers_are_taken():
    run = ud.run(
        METHOD,
        "quadratic",
        rounds=1,
        dtype=np.float32,
        device="cpu:0",
        cohort={"size": np.int64(2)},
        **SMALL,
    )
    assert run.x.dtype == torch.float32 and run.engine.cohort.size == 2


def test_numbers_of_numpy_and_types_of_torch_are_taken():
    plain = ud.run(
        METHOD, "least-squares", rounds=3, steps=[1, 2, 1, 2], batch=2, cohort=3, seed=5, **SMALL
    )
    other = ud.run(
        METHOD, "least-squares", rounds=np.int64(3), every=np.int32(1),
        steps=np.array([1, 2, 1, 2]), batch=np.int64(2), cohort=np.int64(3), seed=np.int64(5),
        clients=np.int64(4), dim=np.int64(3), x0=[0, 0, 0], dtype=torch.float64,
        device=torch.device("cpu"),
    )  # fmt: skip
    assert (
        torch.equal(plain.x, other.x)
        and plain.history.rows[-1]["gap"] == other.history.rows[-1]["gap"]
    )
    assert ud.run(METHOD, "quadratic", rounds=1, dtype=torch.float32).x.dtype == torch.float32
    table = ud.run(METHOD, "quadratic", rounds=3, cohort={"size": 2, "dropout": 0.5}).engine.cohort
    assert table == Sampling(2, dropout=0.5)


def test_the_seed_of_a_named_problem():
    one, other = (
        ud.run(METHOD, {"name": "quadratic", "seed": seed}, rounds=1, **SMALL)
        for seed in (3, np.int64(4))
    )
    assert torch.equal(one.problem.optimum, build("quadratic", **SMALL, seed=3).optimum)
    assert torch.equal(other.problem.optimum, build("quadratic", **SMALL, seed=4).optimum)
    assert wrong(problem={"name": "quadratic", "seed": "a"}).keys() == {"seed"}


def test_every_setting_is_in_the_signature_and_explained():
    for name, declared in hints(Setting).items():  # an engine declares what a spec does
        assert hints(Settings)[name] == declared
    parameters = inspect.signature(ud.run).parameters
    assert parameters.keys() >= set(hints(Setting)) | {
        "rounds",
        "every",
        "engine",
        "dtype",
        "device",
        "seed",
    }
    for name, parameter in list(parameters.items())[2:-1]:
        assert f"\n    {name}: " in inspect.getdoc(ud.run), name
        assert parameter.annotation is not inspect.Parameter.empty
    for name, default in {f.name: f.default for f in dataclasses.fields(Setting)}.items():
        assert parameters[name].default in (None, default), name


def test_one_run_and_several_have_the_same_settings():
    one, several = (
        {
            name: (p.annotation, p.default)
            for name, p in inspect.signature(signature).parameters.items()
            if name not in ("method", "seed")
        }
        for signature in typing.get_overloads(ud.run)
    )
    assert one == several and "rounds" in one
