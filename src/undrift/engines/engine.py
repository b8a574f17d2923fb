"""The server's half of a run: clock, ledger, judge, reduction, merge and snapshot.

A phase is five steps on every engine: an order from the clock; the clients' work; a judgement of
who counts; their new states committed; their uploads reduced and merged.

A client whose work does not count is left out of the whole round: if an earlier phase has used
something of it, the round begins again without it. A round that cannot count without it, or that
nobody is left for, is skipped: server and clients are as they were when it began.
"""

from __future__ import annotations

import dataclasses
import hashlib
import math
from collections.abc import Mapping, Sequence
from copy import deepcopy
from functools import cached_property
from importlib import import_module
from typing import Any, ClassVar, cast

import numpy as np
import torch
from torch import Tensor

from undrift.core.cohort import Cohort, Sampling
from undrift.core.faults import Faults, Judging, Rejection
from undrift.core.method import Method, returned
from undrift.core.options import RunOptions, conflicts, refuse
from undrift.core.params import (
    AUTO,
    THEORY,
    BadParameters,
    Natural,
    describe,
    fits,
    hints,
    not_allowed,
    plain,
    read,
)
from undrift.core.problem import Facts, Problem, Sums
from undrift.core.streams import Streams
from undrift.core.struct import Message, State
from undrift.engines.batches import Batches
from undrift.engines.faults import DROPPED, FaultyClients
from undrift.engines.judge import Diverged, Sound, Stuck
from undrift.engines.local import Common
from undrift.engines.memory import Needs, plan
from undrift.engines.messages.format import content
from undrift.engines.options import NoOptions, StoreOptions, registry
from undrift.engines.order import Clock, Order, Share
from undrift.engines.reduction import Reducer
from undrift.engines.site import PREVIOUS, WRITTEN, Site, quiet
from undrift.engines.store import Store
from undrift.engines.work import NOBODY, Counters, Ledger, Part, Troubles, Work

Tensors = dict[str, Tensor]


class Engine:
    """Runs one method on one problem, phase by phase.

    ``settings`` are those of :class:`undrift.core.options.RunOptions` and the engine's own
    ``Options``; ``seed`` decides all that is drawn, ``x0`` is the first point.
    """

    Options: ClassVar[type] = NoOptions
    """The options that only this engine takes."""
    remote: ClassVar[bool] = False
    """Whether clients work, and keep their states, on other machines."""
    leads: bool = True
    """Whether this process writes, and decides by the clock and by signals."""

    site: Site | None = None
    """The clients, where they are in this process."""

    def __init__(
        self,
        method: Method,
        problem: Problem,
        *,
        seed: int = 0,
        x0: object = None,
        **settings: object,
    ):
        owner = type(self).__name__
        # Everything that is wrong is said at once, before anything is made.
        given, mine = dict[str, object](), dict[str, object]()
        for name, value in settings.items():
            if value is not None:
                (mine if name in hints(self.Options) else given)[name] = value
        own, problems = read(self.Options, mine)
        values, wrong = read(RunOptions, given, kind="setting")
        problems |= conflicts(values, given.get("batch")) | wrong | not_methods(method, problem)
        if not fits(plain(seed), Natural):
            problems["seed"] = not_allowed("seed", seed, describe(Natural))
        if isinstance(problem, str):
            text = "an engine takes a Problem, undrift.run a name"
            problems["problem"] = not_allowed("problem", problem, text)
        if problems:
            raise BadParameters(owner, problems)
        self.options = options = RunOptions(**values)
        if reasons := dict(refuse(method, options, None, problem)):
            raise BadParameters(owner, reasons)
        if fields := method.open_fields(THEORY, AUTO):
            texts = {name: f"{name} must be set before an engine runs it" for name in fields}
            raise BadParameters(type(method).__name__, texts)
        self.method, self.problem, self.own = method, problem, self.Options(**own)
        self.streams, self.x0 = Streams(plain(seed)), first_point(x0, problem)
        self.steps = options.local_steps(problem.samples)
        self.cohort = options.cohort or Sampling(problem.clients)
        self.memory = self.needs(method, problem, self.cohort, self.own)
        self.clock = Clock(method, self.steps, self.cohort, self.streams, options.schedule)
        part = options.batch if options.training.accumulate > 1 else None
        self.batches = Batches(
            self.streams, problem, options.drawn, epochs=options.epochs is not None, part=part
        )
        self.judging = options.judge or Judging()
        # A round that needs everybody is not skipped because of a length alone.
        unbounded = self.judging.norm == "off" or method.participation == "full"
        norm = math.inf if unbounded else float(self.judging.norm)
        self.soundness = Sound(self.x0.dtype, norm)
        self.reducer = Reducer(options.aggregation, method, problem.samples, self.x0)
        self.parts: list[Part] = [self.reducer] if self.reducer.last else []
        """What a round changes beside the server's state."""
        self.faulty: FaultyClients | None = None
        at_clients = problem
        if options.faults:
            planned = Faults(options.faults, self.streams, problem.clients)
            if any(fault.kind != "label-noise" for fault in options.faults):
                self.faulty = FaultyClients(planned, self.x0.device)
                self.parts.append(self.faulty)
            if planned.mislabels:
                at_clients = problem.with_label_noise(planned.label_noise(problem.samples))
        self.common = Common(method, problem, at_clients, self.x0, self.batches, options.training)
        self.round = self.phase = 0
        self.ledger, self.troubles = Ledger(), Troubles()
        self.rejections: list[Rejection] = []
        """Clients whose work did not count, and why; who runs an engine for long empties it."""
        begun = returned(method, "server", method.server(self.x0), "Server", like=self.x0)
        self.server: State = begun.lasting()
        self.moved: float | None = None
        """How far the last round that counted moved the model."""
        self._start = self.server
        """The server's state when the round began, which a round that fails returns to."""
        self._size = problem.dim * self.x0.element_size()

    @classmethod
    def needs(
        cls, method: Method, problem: Problem | Facts, cohort: Sampling, options: object
    ) -> Needs:
        """The memory of a run with these ``Options`` of the engine, and where states are kept."""
        if cls.remote:
            model = problem.dim * problem.dtype.itemsize
            vectors = len(method.Server.vectors) + cohort.size * len(method.Up.vectors)
            return Needs(0, model, 0, vectors * model, "device")
        return plan(method, problem, cohort, getattr(options, "store", "device"))

    @cached_property
    def identity(self) -> str:
        """The name of this run in its messages: a digest of all that it was asked to do.

        The same after a resume, in another process, and on another engine or device; data count by
        their number alone, since a server does not have them.
        """
        problem = self.problem
        asked = [self.method, self.options, self.streams.seed]
        sizes = [problem.clients, problem.dim, problem.dtype, [*problem.samples]]
        text = repr([*asked, *sizes])
        return hashlib.sha256(text.encode() + content(self.x0)).hexdigest()[:32]

    @property
    def x(self) -> Tensor:
        """The server's model."""
        return self.method.point(self.server)

    @property
    def ends(self) -> Tensor | None:
        """This round's local models ``[C, d]``; ``None`` if none are here."""
        return torch.cat(self.site.ends) if self.site is not None and self.site.ends else None

    @property
    def drift(self) -> float | None:
        """Mean squared distance of this round's local models to the server's.

        ``None`` where the round made no local models, or they are elsewhere.
        """
        ends = self.ends
        return None if ends is None else float((ends - self.x).square().sum(-1).mean())

    def metrics(self) -> dict[str, float]:
        """Those of the server's model."""
        return self.problem.metrics(self.x)

    def client_metrics(self) -> Sums:
        """Those of the server's model on every client's own samples, ``[N]`` each."""
        return self.problem.client_metrics(self.x)

    def own_metrics(self, names: Sequence[str]) -> tuple[np.ndarray, Sums]:
        """Clients that have a model of their own here, and its metrics on their own samples.

        ``names`` are those of the metrics.
        """
        models = () if self.site is None else self.site.own_models(self.x)
        found = [(members, self.problem.client_metrics(own, members)) for members, own in models]
        who = np.concatenate([NOBODY, *(members for members, _ in found)])
        nothing = torch.zeros(0, dtype=torch.float64, device=self.x0.device)
        return who, {n: torch.cat([nothing, *(one[n] for _, one in found)]) for n in names}

    def agree(self, decision: bool) -> bool:
        """What all processes of the run do: the decision of the one that leads."""
        return decision

    def told(self, numbers: dict[str, float]) -> dict[str, float]:
        """The numbers that the process which leads has found."""
        return numbers

    def continued(self, notes: dict[str, Any] | None) -> dict[str, Any] | None:
        """What the process that leads has continued with, where this one has ``notes``: those of
        the state that it took up, or ``None``. Others continue as it does.
        """
        return notes

    def advance(self) -> None:
        """One phase; or none, where the round begins again or is skipped."""
        phase = (order := self.order()).phase
        # Nobody works for a round that cannot count any more.
        if self.troubles.gone and not self._counts(order):
            return self._skip(order)
        with quiet(self.problem):
            down = returned(phase, "send", phase.send(self.server), "Down", like=self.x0)
            work = self.collect(order, down)
            if self.faulty is not None:
                work = self.faulty.spoil(order, work)
            refused = {**self.judge(order, down, work), **work.failed}
            cohort, counted = order.cohort, work
            # Booked before anybody is left out: what was spent was spent for nothing, too.
            self._book(order, down, work)
            if refused:
                self._leave_out(order, refused)
                cohort = cohort.without(refused)
                if not self._counts(order._replace(cohort=cohort)):
                    useless = not cohort.size and not work.failed
                    return self._skip(order, useless)
                # Earlier phases have used something of these clients; in the first one it is
                # enough to leave out their rows, unless one of them was to upload for all.
                if order.place or order.picked in refused:
                    return self._roll_back()
                counted = work.only(cohort.members)
            server = phase.merge(self.server, self.reduce(order, counted), cohort)
            # The clients' states change last: what raises before has left them as they were.
            self._check_server(order, returned(phase, "merge", server, "Server", like=self.x0))
            self.commit(counted, cohort)
        self.server = server
        self.phase += 1
        if order.last:
            self._end_round(order)

    def run_round(self) -> None:
        """The phases left of this round.

        Raises :class:`Diverged` where the model would no longer be finite, and :class:`Stuck` where
        too many rounds in a row did not count.
        """
        target = self.round + 1
        while self.round < target:
            self.advance()

    def order(self) -> Order:
        """What the next phase asks of the clients."""
        troubles = self.troubles
        # Once a round: when it begins again, those who dropped out are among the gone already.
        if self.phase == 0 and not troubles.gone and self.faulty is not None:
            order = self.clock.at(self.round, 0, troubles.skipped_rounds)
            asked = self.clock.asked(self.round, troubles.skipped_rounds)
            dropped = self.faulty.faults.dropped(self.round, asked.tolist())
            self._leave_out(order, dict.fromkeys(dropped, DROPPED))
        return self.clock.at(self.round, self.phase, troubles.skipped_rounds, troubles.gone)

    def _counts(self, order: Order) -> bool:
        """Whether a phase can count with the clients that are left."""
        needs_all = self.method.participation == "full" or order.phase.who == "all"
        enough = order.cohort.size >= self.reducer.least
        return enough and not (needs_all and not order.cohort.full)

    def _leave_out(self, order: Order, refused: Mapping[int, str]) -> None:
        self.troubles.gone += refused
        self.ledger.left_out += len(refused)
        self.rejections += [Rejection(order.round, order.place, *why) for why in refused.items()]

    def _skip(self, order: Order, useless: bool = False) -> None:
        """Go on to the next round; this one leaves no trace but in the ledger.

        If all work was ``useless`` twice in a row, without a plan of faults, then it is not the
        clients that fail.
        """
        self._roll_back()
        failed = [one for one in self.rejections if one.round == self.round]
        troubles = self.troubles
        troubles.failing += 1
        troubles.useless = troubles.useless + 1 if useless and self.faulty is None else 0
        troubles.skipped_rounds.append(self.round)
        troubles.gone = []
        self.ledger.skipped += 1
        self.round += 1
        if troubles.useless > 1:
            raise Diverged(order.round, "no client's work is finite")
        if troubles.failing > self.judging.patience:
            raise Stuck(troubles.failing, failed)

    def _roll_back(self) -> None:
        """Begin the round again, without the clients that are gone."""
        self.server, self.phase = self._start, 0
        for part in self.parts:
            part.roll_back()

    def _check_server(self, order: Order, server: State) -> None:
        """Raise :class:`Diverged` unless every vector of the server is finite."""
        # Norms tell whether a vector is finite without a copy of it, and a single look at all of
        # them waits for a GPU once. That of the model is taken as the way it has moved.
        sizes, point = [], None
        if order.last:
            point = self.method.point(server)
            sizes = [torch.dist(point, self.method.point(self._start))]
        for _, v in server.items():
            if v is not point:
                sizes.append(torch.linalg.vector_norm(v))
        found = torch.stack(sizes).tolist() if len(sizes) > 1 else [sizes[0].item()]
        if not math.isfinite(sum(found)):
            self._roll_back()
            self.troubles.gone = []
            raise Diverged(order.round, "the model is no longer finite")
        self.moved = None if point is None else found[0]

    def _end_round(self, order: Order) -> None:
        self.phase, self.round = 0, self.round + 1
        self.troubles = Troubles(skipped_rounds=self.troubles.skipped_rounds)
        self.ledger.iterations += order.iterations
        # Scratch vectors are for the phases of one round.
        self.server = self._start = self.server.lasting()
        for part in self.parts:
            part.begin()

    def collect(self, order: Order, down: Message) -> Work:
        """The clients' work on an order."""
        assert self.site is not None  # engines without one ask elsewhere
        cohort = order.cohort
        return self.site.work(Share(order, cohort.members, cohort.planned, cohort.full), down)

    def judge(self, order: Order, down: Message, work: Work) -> Mapping[int, str]:
        """Client -> why its work does not count, of those that have returned something."""
        return self.soundness(order, down, work)

    def commit(self, work: Work, cohort: Cohort) -> None:
        """Let the clients of ``cohort`` keep their work."""
        if self.site is not None:
            self.site.commit(work)

    def reduce(self, order: Order, work: Work) -> Message:
        """The uploads as the server receives them."""
        assert work.up is not None  # a phase without uploads does not count
        return self.reducer.reduce(order.phase, self.server, work.up, work.senders)

    def snapshot(self, whole: bool = True) -> tuple[dict[str, Any], Counters]:
        """All that a continuation needs, between rounds: tensors by name, and counters.

        If not ``whole``, client states are for reading before the next round: sequences of blocks,
        which have rows of ``client_members`` alone, those who have taken part.
        """
        if self.phase:
            raise RuntimeError(f"round {self.round} is under way: snapshots are between rounds")
        tensors = dict[str, Any]()
        for name, v in self.server.items():
            tensors[f"server.{name}"] = v
        for part in self.parts:
            tensors |= part.tensors(whole)
        counters: Counters = {
            "round": self.round,
            "ledger": dataclasses.asdict(self.ledger),
            "troubles": dataclasses.asdict(self.troubles),
            "usual": dict(sorted(self.soundness.usual.items())),
        }
        return tensors, counters

    def restore(self, tensors: Tensors, counters: Counters) -> None:
        """Continue from a snapshot; one that does not fit the method's states is refused."""
        self._check(tensors)
        self._continue(tensors, counters)

    def _continue(self, tensors: Tensors, counters: Counters) -> None:
        """The ``tensors`` are copied, from whatever device."""
        state, device = self.method.Server, self.x0.device
        server = {name: tensors[f"server.{name}"] for name in state.vectors}
        self.server = state(**{name: v.to(device, copy=True) for name, v in server.items()})
        self._start = self.server
        for part in self.parts:
            part.load(tensors)
        counters = deepcopy(counters)
        self.round, self.phase, self.soundness.usual = counters["round"], 0, counters["usual"]
        self.ledger, self.troubles = Ledger(**counters["ledger"]), Troubles(**counters["troubles"])

    def _check(self, tensors: Tensors) -> None:
        """Raise ``ValueError`` unless tensors are named, shaped and typed as this run's states."""
        clients, vector = self.problem.clients, (self.x0.dtype, tuple(self.x0.shape))
        members = tensors.get(WRITTEN, torch.arange(clients))
        wanted = {f"server.{name}": vector for name in self.method.Server.vectors}
        for part in self.parts:
            wanted |= part.forms(len(members))
        found = {name: (v.dtype, tuple(v.shape)) for name, v in tensors.items()}
        # Clients that send old uploads again are drawn: a snapshot may have any of theirs.
        given = {name for name in found if name != WRITTEN and not name.startswith("stale.")}
        odd = [n for n in sorted(given | wanted.keys()) if found.get(n) != wanted.get(n)]
        numbers = torch.tensor([-1, *members.flatten().tolist(), clients])
        if odd or members.dtype != torch.int64 or not bool((numbers.diff() > 0).all()):
            raise ValueError(
                f"the saved states are not those of {type(self.method).__name__} for {clients} "
                f"clients and {vector}: {odd or WRITTEN}; continue the run that saved them, or "
                "begin afresh"
            )

    def _book(self, order: Order, down: Message, work: Work) -> None:
        self.ledger.book(order, down, work, self._size)


class Simulate(Engine):
    """All clients on one site, in one process, the vectors of a cohort stacked.

    ``store`` says where the vectors of all clients are kept: on the ``device``, in memory beside
    the GPU (``host``), in a ``file``, or in the first of these with room for them (``auto``). The
    numbers are the same.
    """

    Options = StoreOptions
    site: Site

    def __init__(self, method: Method, problem: Problem, **arguments: Any):
        super().__init__(method, problem, **arguments)
        self.site = Site(self.common, place=self.memory.place)
        self.parts.append(self.site)

    @property
    def store(self) -> Store:
        """What the clients remember."""
        return self.site.store

    @property
    def clients(self) -> State:
        """What the clients remember: a record of vectors ``[N, d]``."""
        tensors = self.store.gather(None)
        return self.method.Client(**{name: v for name, v in tensors.items() if name != PREVIOUS})


def load(name: str) -> type[Engine]:
    """The class of an engine, by its name."""
    module, _, cls = registry[name].home.partition(":")
    return cast("type[Engine]", getattr(import_module(f"undrift.engines.{module}"), cls))


def not_methods(method: object, problem: object) -> dict[str, str]:
    """What is wrong with the kind of a method and of a problem, which may be a name."""
    problems = {}
    if not isinstance(method, Method):
        wanted = "first a method, as undrift.FedAvg(lr=0.1), then the problem"
        problems["method"] = not_allowed("method", method, wanted)
    if not isinstance(problem, str | Problem):
        wanted = "the name of a problem, or a Problem"
        problems["problem"] = not_allowed("problem", problem, wanted)
    return problems


def first_point(x0: object, problem: Problem | Facts) -> Tensor:
    """Where a run starts, in the problem's own type and place. Raises :class:`BadParameters`."""
    start = problem.start()
    try:
        point = start if x0 is None else torch.as_tensor(x0)
        sound = point.shape == start.shape and bool(point.isfinite().all())
    except (TypeError, ValueError, RuntimeError):
        sound = False
    if not sound or point.is_complex():
        text = f"x0 is not a vector of {problem.dim} finite numbers, as problem.start() is"
        raise BadParameters("run", {"x0": text})
    return point.to(problem.dtype).to(problem.device)
