import dataclasses
import subprocess
import sys

import numpy as np
import pytest
import torch

from undrift.core import (
    BadParameters,
    Message,
    Method,
    Phase,
    Scratch,
    State,
    Vec,
    length,
    registry,
)
from undrift.core.aggregation import NormClipping, WeightedMean
from undrift.core.cohort import Sampling
from undrift.core.method import Round
from undrift.core.options import Training
from undrift.core.params import describe, hints, read, unknown
from undrift.core.streams import Streams
from undrift.methods import DANEPlus, FedAvg, FedRecu, FedRed, Scaffold, find


class Pair(State):
    a: Vec
    b: Scratch


def test_records_hold_what_is_declared_and_nothing_else():
    one = Pair(a=1)
    assert (one.a, Pair.vectors, Pair.scratch) == (1, ("a",), ("b",))
    with pytest.raises(AttributeError, match="Pair has no b yet: no phase of this round has kept"):
        one.b  # noqa: B018
    with pytest.raises(AttributeError, match="Pair has no field c; it has a, b"):
        one.c  # noqa: B018
    assert one.replace(b=2).items() == [("a", 1), ("b", 2)]
    assert one.replace(b=2).lasting().items() == [("a", 1)]
    with pytest.raises(TypeError, match="a is missing"):
        Pair(b=1)
    with pytest.raises(TypeError, match="no field c; it has a, b"):
        Pair(c=2)
    with pytest.raises(TypeError, match="Empty has no field a; it has none"):
        type("Empty", (State,), {})(a=1)
    with pytest.raises(TypeError, match="a Scratch one of a state"):
        type("Bad", (Message,), {"__annotations__": {"g": Scratch}})
    with pytest.raises(AttributeError, match="frozen"):
        one.a = 3
    with pytest.raises(TypeError, match="a field is a Vec, a Sparse or a Scratch, not int"):
        type("Bad", (Message,), {"__annotations__": {"n": int}})


def test_hyper_parameters_complain_all_at_once():
    with pytest.raises(BadParameters) as caught:
        Scaffold(lr=-1, server_lr=0, option="III")
    assert set(caught.value.problems) == {"lr", "server_lr", "option"}
    assert "lr = -1 is not allowed: number > 0" in str(caught.value)
    assert "'I' or 'II'" in str(caught.value)
    with pytest.raises(BadParameters):
        FedAvg(lr=float("nan"))
    with pytest.raises(BadParameters):
        FedAvg(lr=True)
    assert FedAvg(lr="theory").open_fields() == ["lr"]
    with pytest.raises(dataclasses.FrozenInstanceError):
        FedAvg(lr=1.0).lr = 2.0


def test_unknown_names_suggest_the_nearest():
    _, problems = read(FedAvg, {"lrr": 1.0})
    assert "did you mean lr?" in problems["lrr"]
    assert "missing" in problems["lr"]
    assert "did you mean Scaffold?" in unknown("method", "scafold", registry)
    assert "did you mean" not in unknown("name", "Nope", ["spec"])
    assert describe(hints(DANEPlus)["solver"]) == "'gd' or 'fgd' or 'exact'"
    assert describe(bool | None) == "true or false, or left out"


def test_names_are_found_however_they_are_written():
    assert find("dane+") is find("DANE-Plus") is find("daneplus") is DANEPlus
    assert find("fed_red") is FedRed
    assert find("nothing") is None


def test_phases_run_in_the_order_written():
    assert FedRecu.nested == (FedRecu.Correct,)
    first, second = FedRecu(lr=0.1).phases(Round(0, [3, 3]))
    assert isinstance(first, Phase) and isinstance(second, FedRecu)
    assert first.lr == second.lr == 0.1
    assert (first.Up.vectors, second.Up.vectors) == (("w",), ("v",))


def test_a_method_of_a_user_is_registered_and_can_be_abstract():
    class Mine(FedAvg):
        """lr, server_lr"""

    class Base(Method, abstract=True):
        pass

    try:
        assert registry["Mine"] is Mine
        assert "Base" not in registry
    finally:
        del registry["Mine"]


def test_streams_are_pure_and_independent():
    streams = Streams(7)
    assert np.array_equal(streams.at("a", 1, 2, 3).random(5), Streams(7).at("a", 1, 2, 3).random(5))
    places = [("a", 1, 2, 3), ("b", 1, 2, 3), ("a", 2, 2, 3), ("a", 1, 3, 3), ("a", 1, 2, 4)]
    draws = [tuple(streams.at(*place).random(4)) for place in places] + [
        tuple(Streams(8).at(*places[0]).random(4))
    ]
    assert len(set(draws)) == len(draws)
    many = np.concatenate(
        [streams.at("a", r, c, s).random(20) for r in range(5) for c in range(5) for s in range(5)]
    )
    assert abs(many.mean() - 0.5) < 0.03 and len(np.unique(many)) == len(many)


def test_cohorts_are_uniform_samples_without_replacement():
    counts = np.zeros(10)
    for r in range(2000):
        cohort = Sampling(3).draw(Streams(0), r, 10)
        assert len(np.unique(cohort.members)) == 3 and (np.diff(cohort.members) > 0).all()
        assert cohort.fraction == 0.3 and cohort.round == r
        counts[cohort.members] += 1
    assert np.abs(counts - 600).max() < 90
    assert Sampling(10).draw(Streams(0), 0, 10).full


def test_one_generator_moved_along_a_stream_draws_what_new_ones_would():
    streams = Streams(7)
    at = streams.along("batches")
    for place in [(0, 0, 0), (3, 1, 2), (2**40, 99_999, 5), (3, 1, 2)]:
        moved, new = at(*place), streams.at("batches", *place)
        assert moved.integers(1000, dtype=np.uint32) == new.integers(
            1000, dtype=np.uint32
        )  # leaves half a word behind
        assert moved.permutation(20).tolist() == new.permutation(20).tolist()


@pytest.mark.parametrize("total", [50, 10_001, 30_000])
@pytest.mark.parametrize("sampling", ["fixed", "bernoulli"])
@pytest.mark.parametrize("pool", [None, 40])
@pytest.mark.parametrize("dropout", [0.0, 0.4])
def test_cohorts_are_drawn_from_the_list_of_all_clients(total, sampling, pool, dropout):
    """Without writing the list out; here it is."""
    streams, kind = Streams(4), Sampling(20, sampling, pool, 2, dropout)
    for number in range(4):
        listed = np.arange(total)
        if pool is not None:
            listed = streams.at("pool", number // 2).choice(listed, pool, replace=False)
        rng = streams.at("cohort", number)
        if sampling == "fixed":
            members = rng.choice(listed, 20, replace=False)
        else:
            members = listed[rng.random(len(listed)) < 20 / len(listed)]
        if dropout:
            members = members[streams.at("dropout", number).random(len(members)) >= dropout]
        assert kind.draw(streams, number, total).members.tolist() == sorted(members.tolist())


def test_impossible_federations_are_refused():
    def fields(method, *federation):
        return [refusal.field for refusal in method.refuse(*federation)]

    assert fields(FedRecu(lr=1), 5, Sampling(2), [1] * 5) == ["cohort"]
    assert fields(FedRecu(lr=1), 2, Sampling(2), [1, 2]) == ["steps"]
    assert fields(FedAvg(lr=1), 5, Sampling(6), [1] * 5) == ["cohort.size"]
    assert fields(FedAvg(lr=1), 5, Sampling(3, pool=6), [1] * 5) == ["cohort.pool"]
    assert fields(FedAvg(lr=1), 5, Sampling(5), [1] * 3) == ["steps"]
    assert fields(FedRecu(lr=1), 5, Sampling(5), 1, WeightedMean()) == ["aggregation"]
    assert fields(FedAvg(lr=1), 5, Sampling(2), [1, 2, 3, 4, 5]) == []


def test_the_server_holds_and_sends_its_point_unless_declared_otherwise():
    class Plain(Method, abstract=True):
        class Up(Message):
            y: Vec

        def work(self, me, got, f):
            return me, self.Up(y=got.x)

        def merge(self, s, up, cohort):
            return self.Server(x=up.y)

    (phase,) = Plain().phases(Round(0, [1]))
    assert (phase.who, phase.reduction) == ("cohort", "mean")
    assert Plain.Server.vectors == phase.Down.vectors == ("x",)
    assert phase.send(Plain().server(3.0)).x == 3.0
    assert Method.phases(Method(), Round(0, [1])) == [Method()]


def test_who_and_how_can_depend_on_hyper_parameters():
    class Some(Method, abstract=True):
        lonely: bool = False
        reduction = "sum"

        @property
        def who(self):
            return "one" if self.lonely else "all"

        class First(Phase):
            who = "all"

            @property
            def reduction(self):
                return "stack" if self.lonely else "pick"

        def work(self, me, got, f): ...

    for lonely in (False, True):
        first, own = Some(lonely=lonely).phases(Round(0, [1]))
        assert (first.who, first.reduction) == ("all", "stack" if lonely else "pick")
        assert (own.who, own.reduction) == ("one" if lonely else "all", "sum")


def test_methods_load_without_torch_or_numpy():
    code = "import sys, undrift.methods, undrift.core.costs; "
    code += "print({'torch', 'numpy'} & set(sys.modules))"
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert result.stdout.strip() == "set()"


@pytest.mark.parametrize("number", [np.float32(0.5), np.float64(0.5), torch.tensor(0.5)])
def test_numbers_of_numpy_and_torch_are_taken_as_numbers(number):
    method = FedAvg(lr=number)
    assert type(method.lr) is float and method == FedAvg(lr=0.5)
    with pytest.raises(BadParameters, match=r"lr = -0\.5"):
        FedAvg(lr=-number)
    with pytest.raises(BadParameters, match="lr"):
        FedAvg(lr=np.array([0.5]))


@pytest.mark.parametrize("size", [5, 2**14, 10**7 + 1])
def test_long_vectors_keep_their_length(size):
    """As many numbers as a ResNet-18 has: added one after another, their squares lack 0.04 %."""
    rows = torch.randn(2, size, generator=torch.Generator().manual_seed(0)) + 0.1
    expected = rows.double().square().sum(1, keepdim=True).sqrt()
    torch.testing.assert_close(length(rows).double(), expected, rtol=2e-6, atol=0)
    clipped = NormClipping(radius=1.0).reduce(rows[:1])
    assert float(clipped.double().square().sum().sqrt()) == pytest.approx(1.0, rel=2e-6)
    scale = Training(clip=1.0).scale(rows).double()
    torch.testing.assert_close(scale, 1 / expected, rtol=2e-6, atol=0)
