"""What a spec declares: every setting with its range and its meaning, and a checked spec."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import re
from collections.abc import Mapping
from contextlib import suppress
from typing import Annotated, Any, Literal

from undrift.core.method import Method
from undrift.core.options import RunOptions
from undrift.core.params import (
    Count,
    Natural,
    Positive,
    Record,
    Rule,
    Variant,
    hints,
    plain,
    values,
)
from undrift.core.stopping import EarlyStopping, Goal
from undrift.engines.options import EngineOptions, StoreOptions
from undrift.engines.options import registry as engines
from undrift.objectives import Objective
from undrift.problems.named import Named, find
from undrift.spec.document import toml
from undrift.spec.errors import Complaint, Keys, Origin, keys_of
from undrift.spec.space import Seeds, Space, Tuning, TuningNote
from undrift.spec.user_files import UserCall

Values = dict[str, Any]
"""A table of TOML."""
Table = Mapping[str, Any]
"""The same, to be read only."""


FolderName = Annotated[
    str,
    Rule(
        "up to 100 letters, digits, . _ and -, starting with a letter or digit",
        re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}").fullmatch,
    ),
]
Label = Annotated[
    str,
    Rule("printable characters, not only spaces", lambda s: s.isprintable() and s.strip()),
]
Device = Annotated[
    str,
    Rule(
        "cpu, cuda, cuda:0 (or another number) or mps",
        re.compile(r"mps|(cpu|cuda)(:\d+)?").fullmatch,
    ),
]
Part = Literal["draws", "start", "split"]
DRAWS: list[Part] = ["draws"]
Parts = Annotated[
    list[Part],
    Rule(
        "a list of one or more different ones of 'draws', 'start' and 'split'",
        lambda parts: 0 < len(parts) == len({*parts}),
    ),
]
SIMULATE = StoreOptions()
Accuracy = Annotated[float, Rule("number > 0 and <= 1 (80 % is 0.8)", lambda share: 0 < share <= 1)]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Settings(RunOptions):
    """The top of a spec: what all its methods share.

    Args:
        name: the results go to a folder of this name.
        rounds: rounds of communication, after which a method is done.
        objective: the local loss, where the problem leaves it open: a name, or a table with its
            parameters.
        seed: decides cohorts, mini-batches and coins: a number, or a list, one run with each.
        vary: what a seed decides: draws (cohorts, mini-batches, augmentation, coins; left out:
            those of seed 0), start (the first weights), split (who holds which samples; where data
            are drawn, the data); start and split are then the run's seed's, not the problem's.
        every: rounds from one recorded row, which measures all samples, to the next; left out: 1,
            or up to 50 where there are many samples and a round asks few of the clients.
        per_client: every row also measures each client on its own samples: the server's model, and
            the client's own where it has one.
        engine: simulate: the cohort side by side; wire: one client after another, by messages;
            distributed: the cohort dealt among processes (docs/beyond.md).
        dtype: precision of models and gradients; left out: the problem's own.
        device: cpu, cuda, cuda:1 ...
        target: a gap f(x) - f*: a method that reaches it is done.
        target_accuracy: the rounds until a row reaches this test accuracy are counted; no method
            stops there, unless it is the target of stop.
        smooth: rows that a point of an accuracy curve is the mean of, at most a twentieth of them.
        stop: ends a method early: a table of what it waits for, and how long.
        best: by what methods are judged and the best model is kept: a metric, or a table of metric
            and mode; left out: that of stop, else the gap, else the accuracy, else the loss.
    """

    name: FolderName
    rounds: Count
    objective: Objective | None = None
    seed: Natural | Seeds = 0
    vary: Parts = dataclasses.field(default_factory=DRAWS.copy)
    every: Count | None = None
    per_client: bool = False
    engine: EngineOptions = SIMULATE
    dtype: Literal["float64", "float32"] | None = None
    device: Device = "cpu"
    target: Positive | None = None
    target_accuracy: Accuracy | None = None
    smooth: Count = 10
    stop: EarlyStopping | None = None
    best: Goal | None = None

    @property
    def seeds(self) -> list[int]:
        """One run of every method with each."""
        return [self.seed] if isinstance(self.seed, int) else self.seed

    def top(self) -> Values:
        """The settings as the top of a document has them."""
        found: Values = {name: getattr(self, name) for name in SETTINGS}
        found |= {"seed": self.seeds, "training": changed(self.training) or None}
        if self.epochs is not None:
            del found["steps"]
        options = changed(self.engine)
        found["engine"] = {"name": self.engine.name, **options} if options else self.engine.name
        return found


PER_METHOD = (
    "rounds",
    "steps",
    "epochs",
    "cohort",
    "batch",
    "schedule",
    "training",
    "objective",
)
"""Settings that a [[method]] may have for itself; at the top they are for all methods."""
TUNED = "tuned"
"""The key of a [[method]] with how its values were found."""
SETTINGS = tuple(dict.fromkeys(("name", *PER_METHOD, *hints(Settings))))
"""The keys of the top."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Entry:
    """One [[method]], with what it takes from the top of the spec."""

    label: str
    method: Method
    rounds: int
    options: RunOptions
    objective: Objective | None
    given: Table
    """The table as it stands in the spec; its file is relative to that."""
    space: Space = dataclasses.field(default_factory=dict)
    """What is to be tuned."""
    place: int = 0
    """The number of its [[method]], from 0."""
    tuned: TuningNote | None = None


@dataclasses.dataclass(frozen=True, kw_only=True)
class Spec(Settings):
    """A checked spec."""

    problem: Named
    """The parameters of the problem."""
    problem_name: str
    problem_file: str | None = None
    """The user's file the problem is from, relative to the spec."""
    calls: Mapping[str, UserCall] = dataclasses.field(default_factory=dict)
    """A network and data of the user's, for the problem images."""
    entries: tuple[Entry, ...]
    tune: Tuning = dataclasses.field(default_factory=Tuning, compare=False)
    sources: Mapping[str, bytes] = dataclasses.field(default_factory=dict, repr=False)
    """The users' files, by their place relative to the spec, in its order."""
    origin: Origin = dataclasses.field(compare=False, repr=False)

    def setting(self, entry: Entry) -> Values:
        """How ``entry`` is run: arguments of ``undrift.runs.api.prepare``."""
        here = {name: getattr(self, name) for name in ("engine", "dtype", "device")}
        return vars(entry.options) | here

    @property
    def anew(self) -> bool:
        """Whether the problem is built anew for each seed."""
        return "start" in self.vary or "split" in self.vary

    def draws_at(self, seed: int) -> int:
        """The seed of cohorts, mini-batches and coins in the run with ``seed``."""
        return seed if "draws" in self.vary else 0

    def complaint(self, i: int, field: str, text: str) -> Complaint:
        """A complaint about ``field`` of the i-th method, at the place where the spec has it."""
        entry = self.entries[i]
        return self.origin.complaint(path_of(field, entry.place, entry.given), text)

    def document(self) -> Values:
        """The spec with every default written out, as TOML holds it."""
        file = {} if self.problem_file is None else {"file": self.problem_file}
        found = self.top()
        found["problem"] = {"name": self.problem_name, **file, **values(self.problem)}
        for name, call in self.calls.items():
            found[name] = call.table()
        found["method"] = [*map(self._table, self.entries)]
        whole: Values = as_toml(found)
        return whole

    def toml(self) -> str:
        """The document as a file."""
        return toml(self.document())

    @property
    def identity(self) -> str:
        """A fingerprint of all that decides what a run computes."""
        return identity_of(self.document(), self.sources)

    def _table(self, entry: Entry) -> Values:
        used = {**vars(entry.options), "rounds": entry.rounds, "objective": entry.objective}
        own = {name: used[name] for name in PER_METHOD if name in entry.given}
        if "training" in own:  # what the table leaves out is as the top has it
            own["training"] = {n: getattr(own["training"], n) for n in entry.given["training"]}
        head = {
            "name": type(entry.method).__name__,
            "label": entry.label,
            "file": entry.given.get("file"),
        }
        return {**head, **own, **values(entry.method), **entry.space, TUNED: entry.tuned}


def normal(document: Table) -> Values:
    """What of a document decides the numbers."""
    found = dict(document)
    engine = found.get("engine")
    name = engine["name"] if isinstance(engine, Mapping) else engine
    if isinstance(name, str):  # engines with the same numbers are one
        known = engines.get(name)
        found["engine"] = known.same_as or name if known else name
    return found


def identity_of(document: Table, sources: Mapping[str, bytes]) -> str:
    """The identity of the spec with a document and files."""
    total = hashlib.sha256(json.dumps(normal(document), sort_keys=True).encode())
    for name, content in sources.items():
        total.update(f"\n{name} {len(content)}\n".encode() + content)
    return total.hexdigest()


def path_of(field: str, i: int, table: Mapping[str, object]) -> Keys:
    """Where a spec has ``field`` of its i-th method: in that method's ``table``, or at the top.

    The field of another table is written with a dot, as ``cohort.size`` or ``faults.0.rate``.
    """
    keys = ("epochs",) if field == "steps" and "epochs" in table else keys_of(field)
    # A run has a name too, which no method's complaint is about.
    own = keys[0] == "name" or (keys[0] in PER_METHOD and keys[0] in table)
    return ("method", i, *keys) if own or keys[0] not in SETTINGS else keys


def changed(record: object) -> Values:
    """The fields of a record that are not at their defaults."""
    usual = values(type(record)())
    return {name: value for name, value in values(record).items() if value != usual[name]}


def as_toml(value: object) -> Any:
    """``value`` as TOML holds it: no records, no tuples, no arrays, and nothing for None."""
    if isinstance(value, Objective):
        file = {"file": value.file} if value.file else {}
        value = {"name": type(value).__name__, **file, **values(value)}
    elif isinstance(value, Record):
        name = {"name": value.name} if isinstance(value, Variant) else {}
        value = {**name, **values(value)}
    if isinstance(value, Mapping):
        return {key: as_toml(inner) for key, inner in value.items() if inner is not None}
    if isinstance(value, list | tuple):
        return [as_toml(inner) for inner in value]
    return plain(value)


def varied(document: Table) -> str:
    """What differs from seed to seed in the run of a spec, and what does not, in words.

    >>> varied({"problem": {"name": "images"}})
    'random draws (same split, same first weights)'
    >>> varied({"problem": {"name": "images"}, "vary": ["split", "start"]})
    'split and first weights (same random draws)'
    """
    vary, problem = document.get("vary", ["draws"]), document.get("problem", {})
    words = {"draws": "random draws"}
    if "file" in problem:
        words |= {"split": "data"} if "seed" in problem else {}
    else:
        with suppress(ValueError):  # a file of somebody else's
            words |= find(str(problem.get("name")))[0].chance
    drawn, same = list[str](), list[str]()
    for part, word in words.items():
        (drawn if part in vary else same).append(word)
    text = " and ".join(drawn)
    return f"{text} (same {', same '.join(same)})" if same else text
