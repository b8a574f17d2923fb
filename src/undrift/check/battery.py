"""The checks of a method. Each takes its class and raises :class:`Failure`."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor

from undrift.check.checks import (
    Failure,
    Inapplicable,
    Result,
    by_name,
    drawing_nothing,
    expect,
    expect_meanings,
    results,
)
from undrift.check.federations import (
    STEPS,
    RoundMap,
    after,
    example,
    on_samples,
    phases,
    quadratic,
    quadratics,
    random_clients,
    random_rounds,
)
from undrift.core.method import Exchange, Method, returned
from undrift.core.problem import Problem
from undrift.core.struct import Struct
from undrift.engines import Engine, Simulate, Wire
from undrift.engines.checkpoint import restore, store
from undrift.engines.judge import Diverged
from undrift.engines.messages.frames import header
from undrift.engines.order import Order
from undrift.problems.quadratic import Quadratic

MANY = 24
"""Rounds composed before a map with random communication is squared."""
RETURNS = {"work": ("Client", "Up"), "merge": ("Server",)}
"""The functions that are watched, and what they return."""
DRAWN = "it draws clients by their numbers"
"""Why renamed clients may give another model."""


def affine(cls: type[Method]) -> None:
    """A round is an affine map on quadratics, and no direction grows."""
    if not cls.affine:
        raise Inapplicable("it declares affine = False")
    problem = quadratic()
    step = RoundMap(example(cls, problem.constants), problem)
    state = np.random.default_rng(1).normal(size=step.cold.shape)
    remedy = "where a round takes roots, signs or quotients of its states, declare affine = False"
    try:
        m, b = step.matrix()
        error = np.abs(step(state) - (m @ state + b)).max()
    except Diverged:
        raise Failure(f"from some states a round gives no finite numbers; {remedy}") from None
    expect(
        error < 1e-8 * max(1.0, np.abs(m).max()),
        f"a round is declared affine but is not (error {error:.1e}); {remedy}",
    )
    if random_rounds(step.engine.method):
        step = RoundMap(step.engine.method, problem, rounds=MANY)
        m, b = step.matrix()
    values = np.linalg.eigvals(m)
    radius = np.abs(values).max()
    expect(
        radius <= 1 + 1e-9,
        f"errors grow from round to round: the spectral radius of a round is {radius:.6f}",
    )
    on_circle = values[np.abs(np.abs(values) - 1) < 1e-7]
    expect(np.abs(on_circle - 1).max(initial=0) < 1e-6, "a round has an undamped oscillation")
    expect(
        len(on_circle) <= len(step.cold) - problem.dim,
        f"{len(on_circle)} directions never contract: the model itself is not damped",
    )


def exactness(cls: type[Method]) -> None:
    """With all clients it reaches the minimiser if it says so, from any start; and stays there."""
    problem = quadratic()
    method = example(cls, problem.constants)
    step = RoundMap(method, problem, rounds=MANY if random_rounds(method) else 1)
    if cls.affine:
        shifted = Simulate(method, problem, steps=STEPS, x0=problem.start() + 1.0)
        limits = _limits(step, [step.cold, step.pack(shifted.snapshot()[0])])
    else:
        limits = [_settled(step)]
    for limit in limits:
        distance = float(np.linalg.norm(step.point(limit) - np.asarray(problem.optimum)))
        if cls.exact:
            expect(
                distance < 1e-9,
                f"declared exact, but it settles {distance:.1e} away from the minimiser",
            )
        else:
            expect(
                distance > 1e-3,
                f"declared inexact, but it reaches the minimiser ({distance:.1e}): declare exact",
            )
    if cls.exact:
        later = step.counters | {"round": 1000}
        moved = float(np.abs(step(limits[0], later) - limits[0]).max())
        expect(
            moved < 1e-6,
            f"the minimiser is not a fixed point: the state still moves by {moved:.1e}",
        )


def permutation(cls: type[Method]) -> None:
    """Renaming the clients changes nothing."""
    h, q = quadratics()
    order = np.array([2, 0, 3, 1])
    renamed = Quadratic(h[order], q[order])
    _same_points(cls, renamed, "renaming the clients changes the model")


def duplication(cls: type[Method]) -> None:
    """Having every client twice changes nothing."""
    h, q = quadratics()
    twice = Quadratic(np.concatenate([h, h]), np.concatenate([q, q]))
    _same_points(cls, twice, "having every client twice changes the model")


def rotation(cls: type[Method]) -> None:
    """Rotating the coordinates rotates the model and nothing else."""
    if cls.coordinatewise:
        raise Inapplicable("it declares coordinatewise = True")
    h, q = quadratics()
    turn = np.linalg.qr(np.random.default_rng(2).normal(size=(h.shape[-1],) * 2))[0]
    turned = Quadratic(turn @ h @ turn.T, q @ turn.T)
    remedy = "where it treats coordinates one by one, declare coordinatewise = True"
    text = f"rotating the coordinates changes the method; {remedy}"
    _same_points(cls, turned, text, turn)


def engines_agree(cls: type[Method]) -> None:
    """simulate and wire give the same points, states and costs.

    With partial cohorts, unequal steps and mini-batches.
    """
    method, problem, setting = on_samples(cls, batch=3)
    fast = after(20, Simulate(method, problem, seed=3, **setting))
    slow = after(20, Wire(method, problem, seed=3, **setting))
    mine, theirs = fast.snapshot(), slow.snapshot()
    for name, tensor in theirs[0].items():
        error = float((mine[0][name] - tensor).abs().max() / tensor.abs().max().clamp(min=1))
        text = (
            f"{name} differs by {error:.1e} between engines that take clients side by side and one "
            "by one: if anything is a norm, mean or sum over clients, take it over dim=-1 alone, "
            "with keepdim=True"
        )
        expect(error < 1e-12, text)
    ours, wired = ({**found[1]["ledger"], **found[1]} for found in (mine, theirs))
    for name, count in ours.items():
        expect(count == wired[name], f"simulate counts {name} = {count}, wire {wired[name]}")
    drift, other = fast.drift or 0, slow.drift or 0
    expect(
        abs(drift - other) < 1e-10 * max(1, drift),
        f"the drift of local models is {drift:g} with simulate and {other:g} with wire",
    )


def traffic(cls: type[Method]) -> None:
    """The bytes that travel are those that the ledger counts, and small headers."""
    method, problem, setting = on_samples(cls)
    engine = after(5, Wire(method, problem, **setting))
    kinds = [kind for p in phases(method) for kind in (p.Down, p.Up)]
    most = 5 * problem.clients * len(kinds) // 2 * max(map(header, kinds))
    for way, real, payload in (
        ("down", engine.site.frames_down, engine.ledger.bytes_down),
        ("up", engine.site.frames_up, engine.ledger.bytes_up),
    ):
        expect(
            0 < real - payload <= most,
            f"{real} bytes went {way} for a declared payload of {payload}",
        )


def resumption(cls: type[Method]) -> None:
    """Saved after any round and loaded elsewhere, a run continues bit for bit."""
    method, problem, setting = on_samples(cls, batch=3)
    whole = Simulate(method, problem, **setting)
    with TemporaryDirectory() as folder:
        file = Path(folder) / "state.safetensors"
        for _ in range(3):
            whole.run_round()
            store(whole, file, "battery")
            resumed = Simulate(method, problem, **setting)
            restore(resumed, file, "battery")
            ahead = Simulate(method, problem, **setting)
            tensors, counters = whole.snapshot()
            ahead.restore({name: t.clone() for name, t in tensors.items()}, counters)
            mine, costs = after(2, resumed).snapshot()
            theirs, others = after(2, ahead).snapshot()
            expect(
                mine.keys() == theirs.keys() and costs == others, "a resumed run counts other costs"
            )
            for name, v in mine.items():
                expect(torch.equal(v, theirs[name]), f"{name} is not bit-equal after resuming")


def updates(cls: type[Method]) -> None:
    """Every state that is kept changes, whatever it is."""
    method, problem, setting = on_samples(cls)
    engine = Simulate(method, problem, **setting)
    tensors, counters = engine.snapshot()
    # Not from its start, where a state may be right to stay: zero with some hyper-parameters, say.
    begun = {name: v + 1 for name, v in tensors.items()}
    engine.restore({name: v.clone() for name, v in begun.items()}, counters)
    ended = after(20, engine).snapshot()[0]
    still = [name for name, v in begun.items() if torch.equal(v, ended[name])]
    expect(not still, f"{', '.join(still)}: the same in all rounds; is a new value returned?")


def purity(cls: type[Method]) -> None:
    """work and merge give the same twice and change none of their arguments.

    Nor do they draw from a global generator.
    """
    method, problem, setting = on_samples(cls)
    with drawing_nothing():
        after(3, _Twice(method, problem, **setting))


def bad_clients(cls: type[Method]) -> None:
    """A client that sends NaN is left out as if it had not been asked; all states stay finite.

    A round that cannot do without it is skipped.
    """
    bad = {"clients": [1], "since": 1}
    spoiled = _faulty(cls, 4, [{"kind": "nan", **bad}])
    rounds = sorted({rejection.round for rejection in spoiled.rejections})
    masks = [{"kind": "drop-before", "clients": [1], "since": r, "until": r + 1} for r in rounds]
    masked = _faulty(cls, 4, masks)
    mine, theirs = spoiled.snapshot()[0], masked.snapshot()[0]
    for name, vectors in mine.items():
        expect(vectors.isfinite().all(), f"one client's NaN reaches {name}")
        expect(
            torch.equal(vectors, theirs[name]),
            f"{name} is not that of a run without the client that sends NaN",
        )


def drop_outs(cls: type[Method]) -> None:
    """A server's vector that is a multiple of its clients' mean stays so when clients drop out.

    Which vectors are, a run with cohorts of one size tells.
    """
    if cls.participation == "full":
        raise Inapplicable("it needs every client in every round")
    if random_clients(on_samples(cls)[0]):
        raise Inapplicable(DRAWN)
    steady = _faulty(cls, 8, [])
    faults = [{"kind": kind, "rate": 0.3} for kind in ("drop-before", "drop-after", "late")]
    tensors = _faulty(cls, 20, faults).snapshot()[0]
    for server, client, factor in _means(steady):
        error = _distance(tensors[server], factor * tensors[client].mean(0))
        times = "" if abs(factor - 1) < 1e-9 else f"{factor:.3g} times "
        text = f"{server} is {times}the mean of {client} until clients drop out"
        expect(error < 1e-9, f"{text}: use cohort.fraction (off by {error:.1e})")


def documented(cls: type[Method]) -> None:
    """Title, paper, and a docstring that explains every hyper-parameter."""
    expect(cls.title and cls.paper, "title and paper must be given")
    expect_meanings(cls)


CHECKS = by_name(
    purity, duplication, permutation, engines_agree, affine, exactness,
    rotation, traffic, resumption, updates, bad_clients, drop_outs, documented,
)  # fmt: skip
"""Every check of a method, by name: what damages others comes before them."""


def examine(cls: type[Method]) -> Iterator[Result]:
    """Put a method through every check, one after another."""
    return results(cls, CHECKS)


def failures(cls: type[Method]) -> dict[str, str]:
    """Name of each failed check -> what is wrong."""
    return {check.name: check.failure for check in examine(cls) if check.failure}


def _limits(step: RoundMap, starts: Sequence[np.ndarray]) -> list[np.ndarray]:
    """Where an affine map takes each start: its fixed point with the same conserved sums."""
    m, b = step.matrix()
    expect(np.abs(np.linalg.eigvals(m)).max() <= 1 + 1e-6, "errors grow from round to round")
    away = np.eye(len(b)) - m
    left, sizes, _ = np.linalg.svd(away)
    conserved = left[:, sizes < 1e-10].T
    system = np.concatenate([away, conserved])
    sums = [np.concatenate([b, conserved @ start]) for start in starts]
    return [np.linalg.lstsq(system, one, rcond=None)[0] for one in sums]


def _settled(step: RoundMap) -> np.ndarray:
    """Where a run from the cold start no longer moves, or is after 4,000 rounds."""
    state = step.cold
    for begun in range(0, 4000, 200):
        step.place(state, step.counters | {"round": begun})
        before, state = state, step.pack(after(200, step.engine).snapshot()[0])
        if np.abs(state - before).max() < 1e-13:
            break
    return state


def _same_points(
    cls: type[Method], other: Problem, sentence: str, turn: np.ndarray | None = None
) -> None:
    one = quadratic()
    method = example(cls, one.constants)
    if random_clients(method):
        raise Inapplicable(DRAWN)
    a, b = Simulate(method, one, steps=STEPS), Simulate(method, other, steps=STEPS)
    for _ in range(20):
        a.run_round()
        b.run_round()
        expected = a.x.numpy() if turn is None else turn @ a.x.numpy()
        error = float(np.abs(expected - b.x.numpy()).max())
        expect(error < 1e-9, f"{sentence} (by {error:.1e})")


def _faulty(cls: type[Method], rounds: int, faults: Sequence[Mapping[str, object]]) -> Engine:
    """A run with faults, after so many rounds; with partial cohorts where they are allowed."""
    method, problem, setting = on_samples(cls)
    judge = {"patience": rounds}
    return after(rounds, Simulate(method, problem, faults=faults, judge=judge, **setting))


def _means(engine: Engine) -> list[tuple[str, str, float]]:
    """(server's, clients') vectors of which one is so many times the mean of the other, not 0."""
    tensors, found = engine.snapshot()[0], []
    servers, clients = (
        [name for name in tensors if name.startswith(side)] for side in ("server.", "client.")
    )
    for server, client in itertools.product(servers, clients):
        mean = tensors[client].mean(0)
        factor = float((tensors[server] * mean).sum() / (mean * mean).sum())
        if factor and _distance(tensors[server], factor * mean) < 1e-12:
            found.append((server, client, factor))
    return found


def _distance(one: Tensor, other: Tensor) -> float:
    """The largest difference, by the largest entry."""
    return float((one - other).abs().max() / other.abs().max().clamp(min=1))


class _Twice(Simulate):
    """Does everything twice and compares."""

    def order(self) -> Order:
        order = super().order()
        return order._replace(phase=cast(Exchange, _Watched(order.phase)))


class _Watched:
    """A phase whose work and merge are done twice."""

    def __init__(self, phase: Exchange):
        self._phase = phase

    def __getattr__(self, name: str) -> Any:
        return _twice(self._phase, name) if name in RETURNS else getattr(self._phase, name)


def _twice(phase: Exchange, name: str) -> Callable[..., Any]:
    """``work`` or ``merge``, whose first two arguments are records; of what comes third only the
    gradients of local work change.
    """

    step = getattr(phase, name)

    @functools.wraps(step)
    def watched(one: Struct, other: Struct, third: Any) -> Any:
        kept = [record.map(Tensor.clone) for record in (one, other)]
        spent = vars(third).get("gradients")
        first = returned(phase, name, step(one, other, third), *RETURNS[name])
        if spent is not None:
            third.gradients = spent
        second = step(one, other, third)
        _unchanged((one, other), kept, f"{name} changed its arguments")
        _unchanged(first, second, f"{name} called twice gives two results")
        return second

    return watched


def _unchanged(records: Any, copies: Any, sentence: str) -> None:
    """Fail unless a record, or each of several, is the other."""
    if isinstance(records, Struct):
        records, copies = [records], [copies]
    for record, twin in zip(records, copies, strict=True):
        for (name, a), (_, b) in zip(record.items(), twin.items(), strict=True):
            expect(torch.equal(a, b), f"{sentence}: {name}")
