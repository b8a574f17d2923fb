"""Runs whose means are robust reductions: the numbers, the state, and what is refused."""

import dataclasses
import re
import tomllib
from pathlib import Path

import numpy as np
import pytest
import torch
from tests.methods.world import FED, ROUNDS, X0, L, points
from tests.reference import robust as reference
from tests.rounds import after
from tests.spec.texts import CONVEX

import undrift as ud
from undrift.check.federations import example, least_squares
from undrift.core import Message, Method, Vec, registry
from undrift.core.aggregation import MEAN, Median, Robust
from undrift.core.aggregation import registry as every
from undrift.core.cohort import Sampling
from undrift.core.params import BadParameters
from undrift.engines import Simulate, Wire
from undrift.engines.checkpoint import restore, store
from undrift.methods import DANEPlus, FedAvg, FedLin, MimeLite, MimeMVR
from undrift.problems.quadratic import Quadratic
from undrift.spec.reader import parse

PROBLEM = least_squares()
LR = 0.1 / L
RADIUS = 0.4
TABLES = {
    "median": {"name": "median"},
    "trimmed-mean": {"name": "trimmed-mean", "share": 0.2},
    "krum": {"name": "krum", "bad": 1},
    "multi-krum": {"name": "multi-krum", "bad": 1, "keep": 3},
    "geometric-median": {"name": "geometric-median", "iterations": 7, "smoothing": 1e-3},
    "centred-clipping": {"name": "centred-clipping", "radius": RADIUS, "iterations": 2},
    "norm-clipping": {"name": "norm-clipping", "radius": RADIUS},
}
RULES = {
    "median": lambda rows, last: reference.median(rows),
    "trimmed-mean": lambda rows, last: reference.trimmed_mean(rows, 1),
    "krum": lambda rows, last: reference.krum(rows, 1),
    "multi-krum": lambda rows, last: reference.multi_krum(rows, 1, 3),
    "geometric-median": lambda rows, last: reference.weiszfeld(
        rows, reference.median(rows), 1e-3, 7
    ),
    "centred-clipping": lambda rows, last: reference.centred_clipping(rows, last, RADIUS, 2),
    "norm-clipping": lambda rows, last: reference.norm_clipping(rows, RADIUS),
}


rules = {name: rule for name, rule in every.items() if issubclass(rule, Robust)}


# -- the numbers


@pytest.mark.parametrize("rule", rules)
@pytest.mark.parametrize("method", ["FedAvg", "FedLin", "MimeLite"])
def test_runs_as_transcribed(method, rule):
    """One vector, two exchanges of which one sends models, and an upload of two vectors."""
    reduce = RULES[rule]
    if method == "FedAvg":
        ours = FedAvg(lr=LR)
        expected = reference.fedavg(FED, X0, ROUNDS, eta_l=LR, steps=3, reduce=reduce)
    elif method == "FedLin":
        ours = FedLin(lr=LR)
        expected = reference.fedlin(FED, X0, ROUNDS, eta=LR, steps=3, reduce=reduce)
    else:
        ours = MimeLite(lr=LR, beta=0.5)
        expected = reference.mimelite(FED, X0, ROUNDS, eta=LR, beta=0.5, steps=3, reduce=reduce)
    found = points(ours, FED, X0, ROUNDS, steps=3, aggregation=TABLES[rule])
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-11)
    plain = points(ours, FED, X0, ROUNDS, steps=3)
    assert np.abs(found - plain).max() > 1e-3


ABLE = sorted(name for name, method in registry.items() if method.robust)


@pytest.mark.parametrize("rule", rules)
@pytest.mark.parametrize("name", ABLE)
def test_equal_clients_need_no_robustness(name, rule):
    """Where all uploads agree, every rule is the mean, also for models that are far from 0."""
    curve, best = np.diag([1.0, 2.0, 3.0]), 1e3 * np.ones(3)
    problem = Quadratic(np.stack([curve] * 5), np.stack([curve @ best] * 5))
    method = example(registry[name], problem.constants)
    table = TABLES[rule] | ({"radius": 50.0} if "clipping" in rule else {})
    runs = [
        Simulate(method, problem, steps=2, x0=torch.tensor(best + 1), aggregation=reduction)
        for reduction in (None, table)
    ]
    after(6, *runs)
    torch.testing.assert_close(runs[0].x, runs[1].x, rtol=1e-9, atol=1e-9)


def test_a_client_is_in_or_out_with_all_its_vectors():
    """Krum gives both vectors of client 1; of the second alone, client 3 would be chosen."""

    class Two(Method, abstract=True):
        robust = True

        class Up(Message):
            a: Vec
            b: Vec

        def work(self, me, got, f):
            at = torch.as_tensor(f.members).reshape(-1, 1)
            return me, self.Up(a=A[at[:, 0]].clone(), b=B[at[:, 0]].clone())

        def merge(self, s, up, cohort):
            seen.append(up)
            return s

    d, seen = PROBLEM.dim, []
    A = torch.tensor([0.0, 0.1, 0.3, 5, 9]).double().reshape(-1, 1).expand(5, d)
    B = torch.tensor([9.0, 5, 0.3, 0.1, 0]).double().reshape(-1, 1).expand(5, d)
    Simulate(Two(), PROBLEM, aggregation={"name": "krum", "bad": 1}).run_round()
    assert torch.equal(seen[0].a, A[1]) and torch.equal(seen[0].b, B[1])
    assert reference.krum_order(A.numpy(), 1)[0] == 1 and reference.krum_order(B.numpy(), 1)[0] == 3


def test_planned_faults_are_withstood_alike_on_every_engine():
    """One of five sends a thousand times its upload; the mean ends far from the honest run."""
    huge = [{"kind": "scale", "factor": 1e3, "clients": [3]}]
    run = [
        kind(FedAvg(lr=0.05), PROBLEM, steps=2, aggregation=rule, faults=faults)
        for kind, rule, faults in (
            (Simulate, None, None),
            (Simulate, None, huge),
            (Simulate, "geometric-median", huge),
            (Wire, "geometric-median", huge),
        )
    ]
    after(3, *run)
    honest, mean, robust, wire = (engine.x for engine in run)
    torch.testing.assert_close(robust, wire, rtol=0, atol=1e-12)
    assert float((robust - honest).norm()) < 0.1 * float((mean - honest).norm())


def test_a_geometric_median_withstands_small_uploads_too():
    """Ten equal clients, four of whom send 300 times their upload, down to the last digits."""
    problem = Quadratic(np.tile(np.linspace(1, 2, 6), (10, 1)), np.tile(np.arange(6.0), (10, 1)))
    loud = [{"kind": "scale", "factor": 300.0, "clients": [0, 1, 2, 3]}]
    gaps = {}
    for rule in ("median", "geometric-median"):
        setting = {"aggregation": rule, "faults": loud, "judge": {"norm": "off"}}
        gaps[rule] = ud.run(FedAvg(lr=0.1), problem, rounds=400, every=400, **setting)
    gaps = {rule: run.history.last["gap"] for rule, run in gaps.items()}
    assert gaps["median"] < 1e-28 and gaps["geometric-median"] < 1e-28


# -- the state


CENTRED = {"name": "centred-clipping", "radius": 0.3}


@pytest.mark.parametrize("kind", [Simulate, Wire])
@pytest.mark.parametrize("method", [FedLin(lr=0.05), MimeMVR(lr=0.05), FedAvg(lr=0.05)], ids=repr)
def test_a_snapshot_holds_the_last_results_and_goes_on_bit_for_bit(method, kind, tmp_path):
    made = [kind(method, PROBLEM, steps=2, batch=3, aggregation=CENTRED) for _ in "ab"]
    engine, other = made
    after(3, engine)
    phases = {type(phase).__name__: phase.Up.vectors for phase in method.exchanges()}
    names = {f"reduction.{p}.{v}" for p, vectors in phases.items() for v in vectors}
    tensors = engine.snapshot()[0]
    assert {name for name in tensors if name.startswith("reduction.")} == names
    assert all(bool(tensors[name].any()) for name in names)
    file = tmp_path / "state.safetensors"
    store(engine, file, "run")
    restore(other, file, "run")
    after(3, *made)
    mine, theirs = engine.snapshot()[0], other.snapshot()[0]
    assert all(torch.equal(mine[name], theirs[name]) for name in mine)


# -- what is refused


def derived(method):
    """No memory on the clients, and every exchange ends in a mean of many."""
    phases = method.exchanges()
    means = all(phase.who != "one" and phase.reduction == "mean" for phase in phases)
    return means and not method.Client.vectors


@pytest.mark.parametrize("name", sorted(registry))
def test_a_method_says_whether_its_means_may_be_replaced(name):
    cls = registry[name]
    assert cls.robust == derived(example(cls, PROBLEM.constants))
    assert cls.robust == (not cls.needs_mean)


@pytest.mark.parametrize("name", sorted(registry.keys() - set(ABLE)))
def test_the_others_refuse_with_their_reason(name):
    method = example(registry[name], PROBLEM.constants)
    with pytest.raises(BadParameters) as error:
        Simulate(method, PROBLEM, aggregation="median")
    text = error.value.problems["aggregation"]
    assert method.needs_mean in text and "median" in text


def test_a_method_of_the_users_must_say_so():
    class Mine(Method, abstract=True):
        class Up(Message):
            y: Vec

        def work(self, me, got, f):
            return me, self.Up(y=f.grad(got.x))

        def merge(self, s, up, cohort):
            return s.replace(x=s.x - 0.01 * up.y)

    class Declared(Mine, abstract=True):
        robust = True

    class Summing(Declared, abstract=True):
        reduction = "sum"

    for kind, fields in ((Mine, ["aggregation"]), (Declared, []), (Summing, ["aggregation"])):
        reasons = kind().refuse(5, Sampling(5), 1, Median())
        assert [reason.field for reason in reasons] == fields


def test_one_random_client_cannot_be_judged():
    rand = DANEPlus(lam=0.5, lr=0.1, average="rand")
    assert [r.field for r in rand.refuse(5, Sampling(5), 1, Median())] == ["aggregation"]
    avg = dataclasses.replace(rand, average="avg")
    assert avg.refuse(5, Sampling(5), 1, Median()) == []


@pytest.mark.parametrize(
    ("setting", "field"),
    [
        ({"aggregation": "mode"}, "aggregation"),
        ({"aggregation": {"name": "krum", "bad": 1, "bads": 1}}, "aggregation.bads"),
        ({"aggregation": {"name": "krum", "bad": 2}}, "aggregation.bad"),
        ({"aggregation": {"name": "krum", "bad": 1}, "cohort": 4}, "aggregation.bad"),
        ({"aggregation": {"name": "trimmed-mean", "share": 0.1}}, "aggregation.share"),
    ],
)
@pytest.mark.parametrize("kind", [Simulate, ud.run])
def test_bad_settings_are_named(kind, setting, field):
    more = {"rounds": 1} if kind is ud.run else {}
    with pytest.raises(BadParameters) as error:
        kind(FedAvg(lr=0.1), PROBLEM, **setting, **more)
    assert list(error.value.problems) == [field]


def test_a_round_with_too_few_uploads_is_skipped():
    engine = Simulate(FedAvg(lr=0.1), PROBLEM, aggregation={"name": "krum", "bad": 1})
    engine.judge = lambda order, down, work: {2: "lost"} if order.round == 0 else {}
    engine.run_round()
    assert (engine.round, engine.ledger.skipped) == (1, 1) and torch.equal(engine.x, engine.x0)
    engine.run_round()
    assert engine.ledger.skipped == 1 and not torch.equal(engine.x, engine.x0)


@pytest.mark.parametrize("kind", [Simulate, Wire])
def test_a_round_that_begins_again_begins_with_the_results_before_it(kind):
    """Client 2 is lost in the second phase of round 1, or before its first counts."""
    made = [kind(MimeMVR(lr=0.05), PROBLEM, steps=2, aggregation=CENTRED) for _ in "ab"]
    for place, engine in enumerate(made):
        engine.judge = lambda order, down, work, at=place: (
            {2: "lost"}
            if (order.round, order.place) == (1, at) and 2 in order.cohort.members
            else {}
        )
        after(3, engine)
    ours, theirs = (engine.snapshot()[0] for engine in made)
    assert len(made[1].rejections) == 1 and made[1].ledger.gradients > made[0].ledger.gradients
    assert all(torch.equal(ours[name], theirs[name]) for name in ours)


# -- specs

SPEC = CONVEX.replace('"FedAvg"', '"FedTrack"') + '[aggregation]\nname = "krum"\nbad = 1\n'


def test_a_spec_names_a_reduction():
    spec = parse(SPEC, flags=["problem.clients=5"])
    assert spec.aggregation == rules["krum"](bad=1)
    assert tomllib.loads(spec.toml())["aggregation"] == {"name": "krum", "bad": 1}
    again = parse(spec.toml())
    assert again.aggregation == spec.aggregation and again.identity == spec.identity
    assert parse(SPEC, flags=["aggregation=median"]).aggregation == Median()
    other = parse(SPEC, flags=["problem.clients=7", "aggregation.bad=2"])
    assert other.aggregation == rules["krum"](bad=2)
    plain = parse(CONVEX)
    assert plain.aggregation == MEAN
    same = parse(SPEC.split("[aggregation]")[0], flags=["problem.clients=5"])
    named = parse('aggregation = "median"\n' + SPEC.split("[aggregation]")[0])
    assert named.aggregation == Median()
    assert len({spec.identity, same.identity, other.identity, named.identity}) == 4


def test_the_page_lists_the_methods_and_the_reasons():
    page = (Path(__file__).parents[2] / "docs" / "robust.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| ([A-Z]\w+) \| (.*) \|$", page, re.MULTILINE)
    assert dict(rows) == {n: m.needs_mean for n, m in registry.items() if not m.robust}
    listed = page.split("## Which methods permit it\n\n")[1].split(".")[0]
    assert sorted(re.findall(r"\w+", listed)) == ABLE
    assert all(f"| `{name}` |" in page for name in rules)
