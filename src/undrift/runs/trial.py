"""One method with one seed, round by round: rows, checkpoints, and whether it diverges."""

from __future__ import annotations

import dataclasses
import hashlib
import math
import time
from collections.abc import Sequence
from typing import NamedTuple, Protocol

import torch

from undrift.core.faults import Rejection
from undrift.core.params import AUTO, BadParameters, unknown, values
from undrift.core.stopping import (
    HIGHER,
    MEASURED,
    USUALLY,
    Alarm,
    EarlyStopping,
    Goal,
    Waiting,
    of_some,
)
from undrift.engines import Engine
from undrift.engines.checkpoint import Shelf
from undrift.engines.judge import Diverged, Stuck
from undrift.engines.ranks import Parted
from undrift.engines.work import Counters
from undrift.records import models
from undrift.records.folder import Folder
from undrift.records.journal import Journal
from undrift.records.rows import CLIENTS, LEFT_OUT, METRICS, Outcome, Row, Status
from undrift.runs.advice import advise, remedy, way_on
from undrift.runs.callbacks import Callback, Callbacks
from undrift.runs.clients import measured_clients, refuse_names, spreads
from undrift.runs.events import Emit, LeftOut, Measured, Notice, ignore
from undrift.runs.prepare import Task

PAUSE = 10.0
"""Seconds between checkpoints; 0 is after every round."""
SHARE = 20
"""Rounds take at least this many times as long as the checkpoint before them."""


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
    accuracy: float | None = None
    """The one of which the rounds to it are counted."""

    def missing(self, row: Row, later: tuple[str, ...] = ()) -> dict[str, str]:
        """Complaints about metrics that these rules name and a row lacks, by fields of a spec.

        Names that begin as ``later`` are those of another row.
        """
        wanted = {
            "target": None if self.target is None else "gap",
            "target_accuracy": None if self.accuracy is None else "accuracy",
        }
        wanted |= {f"{goal.owner}.metric": goal.metric for goal in (self.best, self.early) if goal}
        lacking = {field: name for field, name in wanted.items() if name and row.get(name) is None}
        return {
            field: unknown("metric", name, row)
            + f"; for a network, ud.Neural(..., metrics=[{name.lower()!r}])"
            * (name.lower() in HIGHER)
            for field, name in lacking.items()
            if not name.startswith(later)
        }


NO_RULES = TrialRules()


class SoundModel(NamedTuple):
    """The model of the last look at which a run had not diverged."""

    round: int
    x: torch.Tensor


@dataclasses.dataclass(frozen=True)
class RunPlace:
    """Where one method with one seed is kept."""

    journal: Journal
    """Where rows go: the folder of the run, or the part of it that a job has."""
    shelf: Shelf
    folder: Folder | None = None
    """Where models go; ``None``: they are not kept."""
    stem: str = ""
    """What the names of their files begin with."""
    largest: float = math.inf
    """Bytes of the largest state that is worth a checkpoint."""
    lasting: float = 0
    """Bytes of the largest state that a finished run leaves, for a longer one to continue from."""


class MethodResult(NamedTuple):
    """How one method ended with one seed."""

    outcome: Outcome
    engine: Engine | None = None
    """The engine it ended with; ``None`` if it ended at an earlier time, or failed."""
    model: torch.Tensor | None = None
    """Its last model, or the last sound one if it diverged; ``None`` as for the engine."""
    best: models.Best | None = None
    """Its best model, where it was looked for in this process."""
    lasts: bool = False
    """Whether its state was kept, for more rounds to begin from."""


class Trial:
    """One method with one seed, from where it was left; ``draws`` is the seed of its engine.

    Rows go to the journal of its ``place`` and to ``emit``.
    """

    def __init__(
        self,
        task: Task,
        seed: int,
        draws: int,
        place: RunPlace | None = None,
        emit: Emit = ignore,
        rules: TrialRules = NO_RULES,
    ):
        self.task = task = task.settled
        self.seed, self.draws, self.place = seed, draws, place
        self.emit, self.rules, self.waiting = emit, rules, Waiting()
        self.engine = task.engine(draws)
        found = {name: values(task.method)[name] for name in task.written.open_fields(AUTO)}
        if found and self.engine.told(found) != found:
            raise Parted(f"the processes of the run found other values of {', '.join(found)}")
        self.best = models.Best(task.problem, rules.best) if place is None or place.folder else None
        self.callbacks = Callbacks(rules.callbacks, task.label, seed) if rules.callbacks else None
        self.seconds = 0.0
        self.alarm: Alarm | None = None
        self.trouble: Diverged | Stuck | None = None
        """Why the engine itself ended the run."""
        self.judged = ""
        """The column that early stopping looks at."""
        self.sound = SoundModel(0, self.engine.x.clone())
        # Without a row there is no checkpoint; whether there is one, the process that leads knows.
        if place and self.engine.agree((METRICS, (task.label, seed)) in place.journal.rounds):
            self._resume(place)
        # A checkpoint takes all processes: whether there is one is said by the one that leads, as
        # is every other decision here that several of them have to take alike.
        largest = place.largest if place else math.inf
        self.fits = largest == math.inf or self.engine.agree(state_bytes(self.engine) <= largest)

    def run(self, stop: StopSignal | None = None, pause: float = PAUSE) -> MethodResult:
        """Run to the end, until a rule ends it, or until ``stop`` is asked."""
        engine, task, place = self.engine, self.task, self.place
        status = self.train(stop, pause)
        last, note, files = SoundModel(engine.round, engine.x), "", dict[str, str]()
        if status == "diverged":
            last = self.sound
            began_finite = self.alarm is None or math.isfinite(self.alarm.limit)
            note = advise(task, self.draws, engine.round, began_finite)
        told = task.problem.metric_samples != "test" or (self.alarm and not self.alarm.learnt)
        if status == "done" and self.alarm and told and self.alarm.loss > self.alarm.began:
            note = f"ended with a larger loss than it began with: {remedy(task)}"
        elif status == "done" and self.alarm and self.alarm.fell:
            note = f"ended with less {self.alarm.judged} than it began with: {remedy(task)}"
        if status == "early":
            why = self.callbacks.why if self.callbacks else ""
            rows = f"{self.waiting.rows} rows" if self.waiting.rows > 1 else "row"
            why = why or f"no better {self.judged} in the last {rows}"
            note = f"stopped early in round {engine.round}: {why}"
        if status == "stuck":
            note = f"stuck in round {engine.round}: {self.trouble}: {way_on(task.method)}"
        lasts = False
        # The clients of a federation, which have no site here, keep their own states.
        if place and status == "done" and self.fits and engine.site is not None:
            lasts = engine.agree(state_bytes(engine) <= place.lasting)
        if lasts:
            self.keep()
        if place and place.folder and status != "stopped":
            about: dict[str, object] = {"label": task.label, "seed": self.seed, "round": last.round}
            files = models.keep(place.folder, task.problem, place.stem, about, last.x, self.best)
        outcome = Outcome(
            task.label,
            type(task.method).__name__,
            self.seed,
            status,
            values(task.method),
            note="; ".join(filter(None, (note, task.remark))),
            model=hashlib.sha256(last.x.detach().cpu().contiguous().numpy().tobytes()).hexdigest(),
            best=self.best.about if "best" in files and self.best else None,
            files=files,
            seeded=engine.streams.used,
        )
        return MethodResult(outcome, engine, last.x, self.best, lasts)

    def train(self, stop: StopSignal | None = None, pause: float = PAUSE) -> Status:
        """Round by round: measure, keep, stop."""
        engine, rounds, every = self.engine, self.task.rounds, self.task.every
        stored = time.perf_counter()
        if self.alarm is None:
            first = measure(engine, self.seconds)
            self._record(first)
            self.alarm = Alarm.first(first, self.rules.best)
            if self.callbacks and engine.agree(bool(self.callbacks.why)):
                return "early"
        while engine.round < rounds:
            if engine.agree(stop is not None and stop.asked):
                self.keep()
                return "stopped"
            started = time.perf_counter()
            try:
                engine.run_round()
            except (Diverged, Stuck) as trouble:
                self.trouble = trouble
            if engine.rejections:
                self._leave_out(engine.rejections)
                engine.rejections = []
            if isinstance(self.trouble, Diverged):
                return "diverged"
            if isinstance(self.trouble, Stuck):
                self.seconds += time.perf_counter() - started
                self._record(measure(engine, self.seconds))
                return "stuck"
            measured = engine.round % every == 0 or engine.round == rounds
            looked = measured or self.alarm.due(engine.round, engine.moved)
            if looked and engine.x0.is_cuda:
                torch.cuda.synchronize(engine.x0.device)
            self.seconds += time.perf_counter() - started
            if looked:
                row = measure(engine, self.seconds)
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

    def _resume(self, place: RunPlace) -> None:
        """Continue from the newest sound checkpoint, if any."""
        engine, key = self.engine, (self.task.label, self.seed)
        rounds = place.journal.rounds
        measured, rejected = {*rounds.get((METRICS, key), ())}, rounds.get((LEFT_OUT, key), ())
        if self.task.per_client:
            measured.intersection_update(rounds.get((CLIENTS, key), ()))

        def fits(counters: Counters) -> bool:
            now = counters["round"]
            whole = sum(round < now for round in rejected) == counters["ledger"]["left_out"]
            return whole and measured.issuperset(self.grid(now))

        notes = place.shelf.restore(engine, fits, lambda why: self.emit(Notice(why)))
        place.journal.keep(*key, last=-1 if notes is None else engine.round)
        how = "continues" if notes else "without a checkpoint, begins anew"
        self.emit(
            Notice(
                f"{self.task.label}, seed {self.seed}: {how} from round {engine.round} of "
                f"{self.task.rounds}"
            )
        )
        if notes is None:
            return
        self.seconds = notes["seconds"]
        self.alarm = Alarm(**notes["alarm"]) if notes["alarm"] else None
        engine.streams.used = notes["drawn"]
        self.waiting = Waiting(**notes.get("waiting", {}))
        if self.best and "model" in notes:
            x = notes["model"].to(engine.x0.device)
            self.best = dataclasses.replace(self.best, **notes["best"], x=x)
        self.sound = SoundModel(engine.round, engine.x.clone())
        if "sound_model" in notes:  # which the process that leads has alone
            self.sound = SoundModel(notes["sound"], notes["sound_model"].to(engine.x0.device))

    def keep(self) -> None:
        """Make a checkpoint, where the run is kept and its state is not too large."""
        if self.place is None:
            return
        # What is recorded before a checkpoint must survive a crash that the checkpoint survives.
        self.place.journal.settle()
        if not self.fits:
            return
        notes: dict[str, object] = {
            "seconds": self.seconds,
            "alarm": self.alarm and vars(self.alarm),
            "drawn": self.engine.streams.used,
        }
        if self.rules.early:
            notes["waiting"] = dataclasses.asdict(self.waiting)
        if self.best and self.best.x is not None:
            notes |= {"best": self.best.about, "model": self.best.x}
        if self.sound.round < self.engine.round:
            notes |= {"sound": self.sound.round, "sound_model": self.sound.x}
        self.place.shelf.store(self.engine, **notes)

    def grid(self, last: int) -> set[int]:
        """The rounds up to ``last`` after which a row is measured."""
        end = {last} if last == self.task.rounds else set[int]()
        return {*range(0, last + 1, self.task.every)} | end

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
        called_off = self.callbacks is not None and agree(bool(self.callbacks.why))
        return "early" if called_off else None

    def _record(self, row: Row) -> None:
        task, engine, place, clients = self.task, self.engine, self.place, None
        if task.per_client:
            clients = measured_clients(engine)
            row |= spreads(clients)
        if self.callbacks:
            added = self.callbacks.see(row, engine) if engine.leads else {}
            row |= engine.told(added)
        if self.alarm is None and (wrong := self.rules.missing(row)):
            raise BadParameters("run", wrong)  # so on every process
        if self.rules.early:
            self.judged = self.rules.early.column(row)
            self.waiting.see(self.rules.early, row)
        name = type(task.method).__name__
        if place and engine.leads:
            about = {"label": task.label, "method": name, "seed": self.seed}
            place.journal.append({**about, **row}, clients)
        self.emit(Measured(task.label, name, self.seed, row, engine.streams.used, clients))
        if self.best:
            self.best.see(row, engine.x)

    def _leave_out(self, rejections: Sequence[Rejection]) -> None:
        """Record whose work did not count."""
        if self.place and self.engine.leads:
            self.place.journal.leave_out(self.task.label, self.seed, rejections)
        self.emit(LeftOut(self.task.label, self.seed, rejections))


def state_bytes(engine: Engine) -> int:
    """Bytes of a checkpoint."""
    problem, method = engine.problem, engine.method
    each = len(method.Client.vectors) + problem.remembers
    vectors = len(method.Server.vectors) + problem.clients * each
    return vectors * problem.dim * engine.x0.element_size()


def measure(engine: Engine, seconds: float = 0.0) -> Row:
    """One row: metrics and costs of the server's model, ``drift`` if the round made local ones."""
    metrics, drift, spent = engine.metrics(), engine.drift, engine.ledger.counts()
    refuse_names(metrics)
    return {
        "round": engine.round,
        **metrics,
        **({} if drift is None else {"drift": drift}),
        "vectors": spent["vectors_up"] + spent["vectors_down"],
        **spent,
        "seconds": seconds,
    }
