"""One TOML file says what to run. It is read whole: either it is right, or everything wrong with it
is listed.
"""

from __future__ import annotations

import dataclasses
import difflib
import hashlib
import json
import re
import tomllib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path as File
from typing import Any, Literal

from undrift.core.cohort import Sampling
from undrift.core.method import Method
from undrift.core.options import Treatment, Weights
from undrift.core.params import Count, Natural, Positive, Probability, hints
from undrift.spec.lines import Path, line_of, locate


@dataclasses.dataclass(frozen=True, kw_only=True)
class Training(Treatment):
    """How a method trains: said at the top of a spec for all of them, or in a [[method]] for that
    one.

    rounds     rounds of communication, after which a method is done
    steps      local steps of a round: one number for all clients, or a list with one for each
    epochs     passes over a client's samples, instead of steps
    objective  the local loss, where the problem leaves it open: a name, or a table with its
               parameters
    """

    rounds: Count
    steps: Count | list[Count] = 1
    epochs: Count | None = None
    objective: Any = None


@dataclasses.dataclass(frozen=True, kw_only=True)
class Settings(Training):
    """The top of a spec: what all its methods share.

    name             the results go to a folder of this name
    cohort           clients that take part in a round: a number or a table; left out: all of them
    batch            samples of a mini-batch; left out: all that a client has
    weights          uniform, or samples: clients count by their number of samples
    seeds            one run of every method with each
    vary             what a seed decides: draws (cohorts, mini-batches, augmentation, coins; left
                     out: those of seed 0),
                     start (the first weights), split (who holds which samples; where data are
                     drawn, the data);
                     start and split are then the run's seed's, not the problem's
    every            rounds from one recorded row to the next
    engine           simulate: the cohort side by side; wire: one client after another, by messages
    dtype            of models and gradients; left out: the problem's own
    device           cpu, cuda, cuda:1 ...
    target           a gap f(x) - f*: a method that reaches it is done
    target_accuracy  the rounds until a row reaches this test accuracy are counted; no method stops
                     there
    smooth           rows that a point of an accuracy curve is the mean of
    """

    name: str
    cohort: Sampling | None = None
    batch: Count | None = None
    weights: Weights = "uniform"
    seeds: list[Natural] = dataclasses.field(default_factory=lambda: [0])
    vary: list[Literal["draws", "start", "split"]] = dataclasses.field(
        default_factory=lambda: ["draws"]
    )
    every: Count = 1
    engine: Literal["simulate", "wire"] = "simulate"
    dtype: Literal["float64", "float32"] | None = None
    device: str = "cpu"
    target: Positive | None = None
    target_accuracy: Probability | None = None
    smooth: Count = 10


LARGEST_SPEC = 2**18
"""Bytes of a spec; the longest of the papers' has 15 thousand."""
DOTS = 200
"""In one line: tomllib takes the square of the time for a key of as many parts."""
TREATMENT = tuple(f.name for f in dataclasses.fields(Treatment))
TRAINING, SETTINGS = (
    (*(f.name for f in dataclasses.fields(part) if f.name not in TREATMENT), *TREATMENT)
    for part in (Training, Settings)
)
"""The keys of the three; those of gradients come last."""


USUAL = {"vary": ["draws"]}
"""What a spec meant that was written before there was a choice."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Entry(Training):
    """One [[method]], with what it takes from the top of the spec."""

    method: Method
    label: str
    given: Mapping[str, Any]
    """The table as it stands in the spec."""
    file: str | None = None
    """The user's file the method is from, relative to the spec."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Spec(Settings):
    """A checked spec."""

    problem: Any
    """The parameters of a problem: a dataclass of ``undrift.problems.named``."""
    problem_name: str
    entries: tuple[Entry, ...]
    sources: Mapping[str, bytes] = dataclasses.field(default_factory=dict, repr=False)
    """The users' files, by their place relative to the spec."""
    origin: Origin = dataclasses.field(compare=False, repr=False)

    def setting(self, entry: Entry) -> dict[str, Any]:
        """How ``entry`` is run: arguments of ``undrift.runs.api.prepare``."""
        own = ("steps", "epochs", *TREATMENT)
        common = ("cohort", "batch", "weights", "engine", "dtype", "device")
        return {name: getattr(entry, name) for name in own} | {
            name: getattr(self, name) for name in common
        }

    @property
    def anew(self) -> bool:
        """Whether the problem is built anew for each seed."""
        return "start" in self.vary or "split" in self.vary

    def problem_at(self, seed: int) -> Any:
        """The problem's parameters in the run with ``seed``."""
        return self.problem.drawn(self.vary, seed) if self.anew else self.problem

    def draws_at(self, seed: int) -> int:
        """The seed of cohorts, mini-batches and coins in the run with ``seed``."""
        return seed if "draws" in self.vary else 0

    def document(self) -> dict[str, Any]:
        """The spec with every default written out, as TOML holds it."""
        top = {name: getattr(self, name) for name in ("name", *SETTINGS)}
        problem = {"name": self.problem_name, **dataclasses.asdict(self.problem)}
        document = top | {"problem": problem, "method": [self._table(e) for e in self.entries]}
        if self.epochs is not None:
            del document["steps"]
        return _plain(document)

    def toml(self) -> str:
        """The document as a file."""
        document = self.document()
        problem, tables = document.pop("problem"), document.pop("method")
        parts = [
            ("", document),
            ("\n[problem]\n", problem),
            *(("\n[[method]]\n", table) for table in tables),
        ]
        return "".join(
            head + "".join(f"{key} = {_toml(value)}\n" for key, value in table.items())
            for head, table in parts
        )

    @property
    def identity(self) -> str:
        """A fingerprint of all that decides what a run computes."""
        decides = {
            key: value
            for key, value in self.document().items()
            if (key, value) not in USUAL.items()
        }
        total = hashlib.sha256(json.dumps(decides, sort_keys=True).encode())
        for name, content in sorted(self.sources.items()):
            total.update(f"\n{name} {len(content)}\n".encode() + content)
        return total.hexdigest()

    def _table(self, entry: Entry) -> dict[str, Any]:
        own = {name: getattr(entry, name) for name in TRAINING if name in entry.given}
        head = {"name": type(entry.method).__name__, "label": entry.label, "file": entry.file}
        return {**head, **own, **values(entry.method)}


@dataclasses.dataclass(frozen=True)
class Complaint:
    """One thing that is wrong, and where."""

    where: str
    text: str
    line: int = 0

    def __str__(self) -> str:
        where = self.where if len(self.where) <= 300 else f"{self.where[:297]}..."
        return f"{where}: {self.text}"


class BadSpec(ValueError):
    """A spec that cannot be run; ``complaints`` says everything that is wrong with it."""

    def __init__(self, complaints: Sequence[Complaint]):
        self.complaints = sorted(dict.fromkeys(complaints), key=lambda c: c.line)
        super().__init__("\n".join(map(str, self.complaints)))


class Origin:
    """Where each part of a spec was written: a line of a file, or a flag of the command line."""

    def __init__(self, source: str, lines: dict[Path, int]):
        self.source, self.lines = source, lines
        self.flags: dict[Path, str] = {}

    def complaint(self, path: Path, text: str) -> Complaint:
        for k in range(len(path), 0, -1):
            if flag := self.flags.get(path[:k]):
                return Complaint(f"-s {flag}", text)
        line = line_of(self.lines, path)
        return Complaint(f"{self.source}:{line}", text, line)


Code = Callable[[Mapping[str, Sequence[str]]], None]
"""Told before any file of a spec is executed: place relative to the spec -> labels of the methods
it has.
"""


def load(source: str | File, flags: Sequence[str] = (), code: Code | None = None) -> Spec:
    """Read a spec file; each flag ``KEY=VALUE`` overrides one of its values. Raises
    :class:`BadSpec`.

    The Python files that a spec names are executed; ``code`` is told first, and may raise.
    """
    file = File(source)
    try:
        with file.open("rb") as opened:
            content = opened.read(LARGEST_SPEC + 1)
        if len(content) > LARGEST_SPEC:
            raise BadSpec(
                [Complaint(str(source), f"not a spec: it has more than {LARGEST_SPEC >> 10} KiB")]
            )
        text = content.decode()
    except FileNotFoundError:
        near = difflib.get_close_matches(
            file.name, [f.name for f in file.parent.glob("*.toml")], n=1, cutoff=0.5
        )
        hint = f"; did you mean {file.parent / near[0]}?" if near else ""
        raise BadSpec([Complaint(str(source), f"there is no such file{hint}")]) from None
    except UnicodeDecodeError as error:
        raise BadSpec([Complaint(str(source), f"not UTF-8 text (byte {error.start})")]) from None
    except OSError as error:
        raise BadSpec(
            [Complaint(str(source), (error.strerror or "cannot be read").lower())]
        ) from None
    return parse(text, str(source), flags, code)


def parse(
    text: str, source: str = "spec", flags: Sequence[str] = (), code: Code | None = None
) -> Spec:
    """A spec from its text; files of methods are looked for beside ``source``."""
    from undrift.spec.reader import Draft

    for number, content in enumerate(text.split("\n"), 1):
        if content.count(".") > DOTS:
            raise BadSpec(
                [Complaint(f"{source}:{number}", f"not a spec: a line with more than {DOTS} dots")]
            )
    try:
        document = tomllib.loads(text)
        lines = locate(text)
    except tomllib.TOMLDecodeError as error:
        place = re.search(r" \(at line (\d+), column (\d+)\)$| \(at end of document\)$", str(error))
        line = place[1] if place and place[1] else str(len(text.splitlines()) or 1)
        message = str(error)[: place.start()] if place else str(error)
        raise BadSpec([Complaint(f"{source}:{line}", f"not TOML: {message}")]) from None
    except RecursionError:
        raise BadSpec([Complaint(source, "not a spec: nested too deeply")]) from None
    except ValueError:  # Python reads no number of thousands of digits
        raise BadSpec(
            [Complaint(source, "not a spec: it has a number of thousands of digits")]
        ) from None
    return Draft(document, Origin(source, lines), File(source).parent, code).finish(flags)


def values(record: Any) -> dict[str, Any]:
    """The hyper-parameters of a method or of an objective."""
    return {name: getattr(record, name) for name in hints(type(record))}


def _plain(value: Any) -> Any:
    """Only what TOML holds: no records, no tuples, and nothing for None."""
    if isinstance(value, Sampling):
        value = dataclasses.asdict(value)
    elif dataclasses.is_dataclass(value):
        value = {"name": type(value).__name__, **values(value)}
    if isinstance(value, Mapping):
        return {key: _plain(inner) for key, inner in value.items() if inner is not None}
    if isinstance(value, (list, tuple)):
        return [_plain(inner) for inner in value]
    return value


def _toml(value: Any) -> str:
    """A value on one line."""
    if isinstance(value, dict):
        return f"{{ {', '.join(f'{key} = {_toml(inner)}' for key, inner in value.items())} }}"
    if isinstance(value, list):
        return f"[{', '.join(map(_toml, value))}]"
    if isinstance(value, float):
        return repr(value)
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
