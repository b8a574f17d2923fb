"""One method with one seed, round by round: rows, checkpoints, and whether it diverges."""

from __future__ import annotations

import dataclasses
import hashlib
import math
import time
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple, Protocol

import torch

from undrift.core.faults import Rejection
from undrift.core.params import BadParameters, unknown
from undrift.core.stopping import MEASURED, USUALLY, EarlyStopping, Goal, Waiting, of_some
from undrift.engines import Engine
from undrift.engines.checkpoint import Shelf
from undrift.engines.judge import Diverged, Stuck
from undrift.engines.work import Counters
from undrift.records.journal import Journal
from undrift.records.models import Best
from undrift.records.rows import CLIENTS, LEFT_OUT, METRICS, Row, Status
from undrift.runs.callbacks import Callback, Callbacks
from undrift.runs.clients import measured_clients, refuse_names, spreads
from undrift.runs.events import Emit, Notice, Resumed, ignore

PAUSE = 10.0
"""Seconds between checkpoints; 0 is after every round."""
SHARE = 20
"""Rounds take at least this many times as long as the checkpoint before them."""
GRADIENT = 1e6
"""A run has diverged when its gradient is this many times the first (or its loss, without one)."""
LOSS = 1e3
"""... or when its loss has grown by this many times the first: gradients may be bounded."""
NEAR = 0.1
"""A gradient or a loss that may be this near to its limit is measured after every round."""


class StopSignal(Protocol):
    """Says when to stop early."""

    @property
    def asked(self) -> bool: ...


@dataclasses.dataclass(frozen=True)
class TrialRules:
    """What ends a run besides its last round, what its best model is best in, and who looks on."""

    target: float | None = None
    """The gap with which the run is done."""
    early: EarlyStopping | None = None
    best: Goal = USUALLY
    callbacks: Sequence[Callback] = ()

    @property
    def metrics(self) -> dict[str, str]:
        """The metrics that these rules name, by their fields in a spec."""
        goals = [self.best, *([self.early] if self.early else [])]
        found = {f"{goal.owner}.metric": goal.metric for goal in goals if goal.metric is not None}
        return found if self.target is None else found | {"target": "gap"}


NO_RULES = TrialRules()


@dataclasses.dataclass
class Alarm:
    """Looks at rows, and says after which rounds without a row a look is worth its time.

    How far a round moves the model costs nothing to know; the gradient follows it, and the loss its
    square. So a look is due when that has doubled since the last one or tells that a limit is near,
    and after rounds 1, 2, 4, 8, ..., which catch losses that grow while gradients stay bounded.
    """

    limit: float = math.inf
    """Of the gradient's norm."""
    ceiling: float = math.inf
    """Of the loss."""
    size: float = 0.0
    """What ``limit`` bounds, at the last look."""
    loss: float = 0.0
    """At the last look."""
    moved: float = 0.0
    """How far the last round before that look moved the model."""

    @classmethod
    def first(cls, row: Mapping[str, float]) -> Alarm:
        """From the row before the first round."""
        ceiling = math.inf
        if row.keys() & {"gap", "accuracy", "train_accuracy"}:  # other losses may begin at 0
            scale = max(abs(row["loss"]), row.get("gap", 0.0))
            ceiling = row["loss"] + LOSS * scale if scale > 0 else math.inf
        return cls(GRADIENT * max(_size(row), 1e-300), ceiling)

    @property
    def began_finite(self) -> bool:
        """Whether the row before the first round was finite."""
        return math.isfinite(self.limit)

    def kept(self) -> dict[str, float]:
        """For a checkpoint: what is finite, since JSON holds no more."""
        return {name: v for name, v in dataclasses.asdict(self).items() if math.isfinite(v)}

    def due(self, round: int, moved: float | None) -> bool:
        """Whether to look after a round that moved the model so far."""
        if round & (round - 1) == 0:
            return True
        if moved is None or moved == 0:
            return False
        if not self.moved or moved > 2 * self.moved:
            return True
        growth = moved / self.moved
        near = self.size * growth >= NEAR * self.limit
        return near or self.loss * growth**2 >= NEAR * self.ceiling

    def look(self, row: Mapping[str, float], moved: float | None) -> bool:
        """Whether a row is that of a run that has diverged."""
        self.size, self.loss = _size(row), row["loss"]
        self.moved = moved or self.moved
        sound = math.isfinite(row["loss"]) and row["loss"] <= self.ceiling
        return not (sound and self.size <= self.limit)


def _size(row: Mapping[str, float]) -> float:
    """What must not blow up: the gradient, or the loss where the gradient is not measured."""
    return float(row.get("grad_norm", abs(row["loss"])))


class SoundModel(NamedTuple):
    """The model of the last look at which a run had not diverged."""

    round: int
    x: torch.Tensor


class Trial:
    """An engine on its way to ``rounds``; every ``every`` rounds a row goes to ``watch``.

    With ``per_client`` each client is measured for every row.
    ``leave_out`` is told after every round whose work did not count.
    """

    def __init__(
        self,
        engine: Engine,
        rounds: int,
        every: int,
        watch: Callable[[Row], None],
        best: Best | None = None,
        leave_out: Callable[[Sequence[Rejection]], None] = lambda rejections: None,
        per_client: bool = False,
        rules: TrialRules = NO_RULES,
        callbacks: Callbacks | None = None,
    ):
        self.engine, self.rounds, self.every = engine, rounds, every
        self.watch, self.best, self.leave_out = watch, best, leave_out
        self.rules, self.callbacks, self.waiting = rules, callbacks, Waiting()
        self.per_client = per_client
        self.clients: Row | None = None
        """Each client's numbers at the last row, where they are measured."""
        self.seconds = 0.0
        self.alarm: Alarm | None = None
        self.trouble: Diverged | Stuck | None = None
        """Why the engine itself ended the run."""
        self.judged = ""
        """The column that early stopping looks at."""
        self.sound = SoundModel(0, engine.x.clone())
        self.keep: Callable[[], None] = lambda: None

    def run(self, stop: StopSignal | None = None, pause: float = PAUSE) -> Status:
        """Run to the end, until a rule ends it, or until ``stop`` is asked."""
        engine, stored = self.engine, time.perf_counter()
        if self.alarm is None:
            self.alarm = Alarm.first(self._measure())
            if self._called_off():
                return "early"
        while engine.round < self.rounds:
            if engine.agree(stop is not None and stop.asked):
                self.keep()
                return "stopped"
            started = time.perf_counter()
            try:
                engine.run_round()
            except (Diverged, Stuck) as trouble:
                self.trouble = trouble
            if engine.rejections:
                self.leave_out(engine.rejections)
                engine.rejections = []
            if isinstance(self.trouble, Diverged):
                return "diverged"
            if isinstance(self.trouble, Stuck):
                self.seconds += time.perf_counter() - started
                self._measure()
                return "stuck"
            measured = engine.round % self.every == 0 or engine.round == self.rounds
            looked = measured or self.alarm.due(engine.round, engine.moved)
            if looked and engine.x0.is_cuda:
                torch.cuda.synchronize(engine.x0.device)
            self.seconds += time.perf_counter() - started
            if looked:
                row = self._row()
                diverged = row.get(MEASURED) != 0 and self.alarm.look(row, engine.moved)
                if measured or diverged:
                    self._record(row)
                if diverged:
                    return "diverged"
                self.sound = SoundModel(engine.round, engine.x.clone())
                if measured and (end := self._end(row)):
                    return end
            if engine.agree((began := time.perf_counter()) - stored >= pause):
                self.keep()
                stored = time.perf_counter()
                pause = pause and max(pause, SHARE * (stored - began))
        return "done"

    def resume(
        self, folder: Journal, shelf: Shelf, label: str, seed: int, emit: Emit = ignore
    ) -> None:
        """Continue from the newest sound checkpoint, if any, and keep checkpoints from now on."""
        rounds = folder.rounds_of((label, seed))
        measured, rejected = set(rounds[METRICS]), rounds[LEFT_OUT]
        if self.per_client:
            measured &= set(rounds[CLIENTS])

        def fits(counters: Counters) -> bool:
            now = counters["round"]
            whole = sum(round < now for round in rejected) == counters.get("left_out", 0)
            return whole and measured.issuperset(self.grid(now))

        notes = shelf.restore(self.engine, fits, lambda why: emit(Notice(why)))
        if notes is not None:
            self.seconds = notes["seconds"]
            self.alarm = Alarm(**notes["alarm"]) if notes["alarm"] else None
            self.engine.streams.used = notes["drawn"]
            self.waiting = Waiting(**notes.get("waiting", {}))
            if self.best and "model" in notes:
                x = notes["model"].to(self.engine.x0.device)
                self.best = dataclasses.replace(self.best, **notes["best"], x=x)
            self.sound = SoundModel(self.engine.round, self.engine.x.clone())
            if "sound_model" in notes:  # which the process that leads has alone
                self.sound = SoundModel(
                    notes["sound"], notes["sound_model"].to(self.engine.x0.device)
                )
            emit(Resumed(label, seed, self.engine.round))
        folder.keep(label, seed, last=-1 if notes is None else self.engine.round)

        def keep() -> None:
            folder.settle()
            notes: dict[str, object] = {
                "seconds": self.seconds,
                "alarm": self.alarm and self.alarm.kept(),
                "drawn": self.engine.streams.used,
            }
            if self.rules.early:
                notes["waiting"] = dataclasses.asdict(self.waiting)
            if self.best and self.best.x is not None:
                notes |= {"best": self.best.about, "model": self.best.x}
            if self.sound.round < self.engine.round:
                notes |= {"sound": self.sound.round, "sound_model": self.sound.x}
            shelf.store(self.engine, **notes)

        self.keep = keep

    def grid(self, last: int) -> set[int]:
        """The rounds up to ``last`` after which a row is measured."""
        return {*range(0, last + 1, self.every)} | ({last} if last == self.rounds else set())

    def _measure(self) -> Row:
        """Measure a row and record it."""
        row = self._row()
        self._record(row)
        return row

    def _row(self) -> Row:
        return measure(self.engine) | {"seconds": self.seconds}

    def _end(self, row: Row) -> Status | None:
        """How the run ends with a row; ``None`` if it goes on.

        One that was measured on some clients only reaches no target.
        """
        rules, agree, whole = self.rules, self.engine.agree, not of_some(row)
        reached = rules.target is not None and row.get("gap", math.inf) <= rules.target
        if rules.target is not None and agree(whole and reached):
            return "reached"
        if rules.early:
            column = rules.early.column(row)
            if agree(whole and rules.early.reached(column, row.get(column, math.nan))):
                return "reached"
            if agree(self.waiting.over(rules.early)):
                return "early"
        return "early" if self._called_off() else None

    def _called_off(self) -> bool:
        """Whether a callback has asked for the end."""
        if self.callbacks is None:
            return False
        return self.engine.agree(bool(self.callbacks.why))

    @property
    def why(self) -> str:
        """Why the run ended early, in words."""
        if self.callbacks and self.callbacks.why:
            return self.callbacks.why
        rows = f"{self.waiting.rows} rows" if self.waiting.rows > 1 else "row"
        return f"no better {self.judged} in the last {rows}" if self.rules.early else ""

    def _record(self, row: Row) -> None:
        if self.per_client:
            self.clients = measured_clients(self.engine)
            row |= spreads(self.clients)
        if self.callbacks:
            added = self.callbacks.see(row, self.engine) if self.engine.leads else {}
            row |= self.engine.told(added)
        if self.alarm is None and (wrong := missing(self.rules.metrics, row)):
            raise BadParameters("run", wrong)  # so on every process
        if self.rules.early:
            self.judged = self.rules.early.column(row)
            self.waiting.see(self.rules.early, row)
        self.watch(row)
        if self.best:
            self.best.see(row, self.engine.x)


def missing(metrics: Mapping[str, str], row: Row) -> dict[str, str]:
    """Complaints about metrics that a row lacks, by the fields that name them."""
    return {
        field: unknown("metric", name, row)
        for field, name in metrics.items()
        if row.get(name) is None
    }


def fingerprint(x: torch.Tensor) -> str:
    """The SHA-256 of a model."""
    return hashlib.sha256(x.detach().cpu().contiguous().numpy().tobytes()).hexdigest()


def measure(engine: Engine) -> Row:
    """One row: metrics and costs of the server's model, ``drift`` if the round made local ones."""
    metrics, drift, spent = engine.metrics(), engine.drift, engine.ledger.counts()
    refuse_names(metrics)
    return {
        "round": engine.round,
        **metrics,
        **({} if drift is None else {"drift": drift}),
        "vectors": spent["vectors_up"] + spent["vectors_down"],
        **spent,
    }
