"""Who looks on at a run: functions that see every row and the model, and what else is asked."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from numbers import Real
from typing import TYPE_CHECKING, Any

from undrift.core.params import BadParameters, not_allowed, plain, shown
from undrift.core.problem import COLUMNS
from undrift.core.stopping import EarlyStopping, Goal
from undrift.records import models
from undrift.records.rows import Row
from undrift.runs.events import Emit

if TYPE_CHECKING:
    from torch import Tensor, nn

    from undrift.engines import Engine


class CallbackFailed(RuntimeError):
    """A callback raised an error, or gave something that is no column of a row.

    ``engine`` is where the run was; one that is saved continues from its last checkpoint.
    """

    def __init__(self, moment: Moment, callback: str, text: str):
        self.label, self.seed, self.round = moment.label, moment.seed, moment.round
        self.callback, self.engine = callback, moment.engine
        who = f"{self.label}, seed {self.seed}, round {self.round}"
        super().__init__(f"{who}: the callback {callback} {text}")


@dataclasses.dataclass(frozen=True, repr=False)
class Moment:
    """A run at the moment it records a row: what a callback sees."""

    label: str
    seed: int
    row: Mapping[str, float]
    """What is recorded: metrics and costs, and what callbacks before this one added."""
    engine: Engine
    """To be looked at; a callback that runs rounds, or changes states, changes the run."""
    wishes: list[str] = dataclasses.field(default_factory=list)

    @property
    def round(self) -> int:
        """Rounds so far; 0 is before the first one."""
        return self.engine.round

    @property
    def x(self) -> Tensor:
        """The server's model: a copy."""
        return self.engine.x.clone()

    def module(self) -> nn.Module:
        """The network with the server's model, where the problem is one."""
        return models.module(self.engine.problem, self.x)

    def predictions(self) -> tuple[object, object]:
        """Outputs and targets of the server's model, where the problem is a network: on the test
        samples where there are some, else on the training samples.
        """
        return self.engine.problem.predictions(self.x)

    def stop(self, why: str = "a callback asked for it") -> None:
        """End the run once this row is recorded."""
        self.wishes.append(str(why))

    def __repr__(self) -> str:
        return f"Moment({self.label}, seed {self.seed}, round {self.round})"


Callback = Callable[[Moment], Mapping[str, float] | None]
"""Called with every row before it is recorded; what it returns are further columns of the row."""


@dataclasses.dataclass(frozen=True)
class PerClient:
    """Every row also measures each client on its own samples, for ``run.per_client``.

    That takes about as long as a pass over all of them.
    """


@dataclasses.dataclass(frozen=True)
class Events:
    """Calls ``function`` with every event of a run (:mod:`undrift.runs.events`) as it happens."""

    function: Emit


Observer = Callback | EarlyStopping | Goal | PerClient | Events
"""What ``callbacks`` takes: a function, what ends a run early, what its best model is best in, that
clients are measured, and who hears of events."""


KINDS: dict[type, str] = {
    EarlyStopping: "stop",
    Goal: "best",
    PerClient: "per_client",
    Events: "events",
}
"""An EarlyStopping is a Goal too, so it comes first."""


@dataclasses.dataclass(frozen=True)
class Observers:
    """The ``callbacks`` of a call, sorted."""

    functions: Sequence[Callback] = ()
    stop: EarlyStopping | None = None
    best: Goal | None = None
    per_client: PerClient | None = None
    events: Events | None = None

    @classmethod
    def read(cls, given: object) -> Observers:
        """From one, or a list of them. Raises :class:`BadParameters`."""
        functions, found = list[Any](), dict[str, Any]()
        for one in given if isinstance(given, list | tuple) else [given]:
            name = next((name for kind, name in KINDS.items() if isinstance(one, kind)), "")
            if name in found or not (name or (callable(one) and not isinstance(one, type))):
                allowed = "functions, and at most one EarlyStopping, Goal, PerClient and Events"
                text = not_allowed("callbacks", given, allowed)
                raise BadParameters("run", {"callbacks": text})
            if name:
                found[name] = one
            else:
                functions.append(one)
        return cls(functions, **found)


class Callbacks:
    """The callbacks of one method with one seed."""

    def __init__(self, callbacks: Sequence[Callback], label: str, seed: int):
        self.callbacks, self.label, self.seed = callbacks, label, seed
        self.columns: dict[int, set[str]] = {}
        """What each has added to the first row it saw."""
        self.why = ""
        """Why the run is to end; empty if it goes on."""

    def see(self, row: Row, engine: Engine) -> dict[str, float]:
        """Show the model to all of them; what they return, each of them seeing those before."""
        numbers: dict[str, float] = {}
        wishes: list[str] = []
        row = dict(row)
        for k, callback in enumerate(self.callbacks):
            moment = Moment(self.label, self.seed, dict(row), engine, wishes)
            try:
                found = callback(moment)
            except Exception as error:
                text = f"failed with {type(error).__name__}: {error}"
                raise CallbackFailed(moment, name_of(callback), text) from error
            added = {} if found is None else found
            good = isinstance(added, Mapping) and all(_is_new(*pair, row) for pair in added.items())
            if not good or self.columns.setdefault(k, {*added}) != {*added}:
                text = f"returned {shown(added)}: nothing, or numbers by new names, always the same"
                raise CallbackFailed(moment, name_of(callback), text)
            numbers |= {name: plain(value) for name, value in added.items()}
            row |= numbers
        self.why = "; ".join(wishes)
        return numbers


def name_of(callback: Callback) -> str:
    """What a callback is called."""
    return str(getattr(callback, "__qualname__", type(callback).__qualname__))


def _is_new(name: object, value: object, row: Row) -> bool:
    """Whether a callback may add a number by that name to a row."""
    if not isinstance(name, str) or not name.isidentifier() or name in row or name in COLUMNS:
        return False
    return isinstance(plain(value), Real) and not isinstance(plain(value), bool)
