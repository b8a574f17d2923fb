"""The files of a run that grow: rows of metrics, outcomes and the log."""

from __future__ import annotations

import hashlib
import io
import json
import os
import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from undrift._files import naming, read_plain, sync, write_whole
from undrift.core.faults import Rejection
from undrift.records.outcome import ENDS, Outcome
from undrift.records.rows import (
    CLIENTS,
    LEFT_OUT,
    METRICS,
    NEEDED,
    Digests,
    Key,
    Lined,
    Row,
    digests_of,
    key_of,
    keyed,
    numbers,
    parsed,
    row_of,
    text_of,
)
from undrift.records.seals import Lines, after, beginning, check, seal, sealed

LOG = "log.txt"
COMPLETE = "summary.json"
CHECKPOINTS = "checkpoints"
"""The folder an unfinished run continues from; removed once the run is finished."""
ENDED = f"{CHECKPOINTS}/outcomes.jsonl"
PROOF = "proof"
LARGEST = 1 << 31
"""Bytes of a file that is read: some million rows."""
Entry = dict[str, Any]
"""An outcome as a file has it."""


class Record(NamedTuple):
    """What a run has recorded."""

    rows: list[Row]
    outcomes: list[Outcome]
    left_out: list[Row]
    """Whose work did not count, in which round and phase, and why."""
    clients: list[Row]
    """The numbers of each client, where they were measured: ``label``, ``seed``, ``round``, ``of``
    (which samples), and a list for every metric.
    """


class BadFolder(ValueError):
    """Not a folder a run can be kept in, or read from; the message says what to do."""


class Listener(Protocol):
    """Hears of every row and outcome once it is on disk."""

    def row(self, row: Row) -> None: ...
    def ended(self, outcome: Outcome) -> None: ...
    def close(self) -> None: ...


class Journal:
    """Rows and log lines are on disk as soon as they are given; a failed write leaves no trace."""

    def __init__(self, path: Path):
        self.path = path
        self.rounds: dict[str, dict[Key, list[int]]] = {name: {} for name in NEEDED}
        """Of the rows that an interrupted run has in each file, their rounds."""
        self.listeners: list[Listener] = []
        self._digests: Digests = {}
        self._seals: dict[str, str] = {}
        """The running digest of each file that this process has written to."""
        self._open: dict[str, io.FileIO] = {}

    @property
    def identity(self) -> str:
        """What tells this run from others; part of every seal and proof."""
        return ""

    @property
    def sealed(self) -> bool:
        """Whether every line has a seal: the run was begun by a version that writes them."""
        return False

    @property
    def complete(self) -> bool:
        """Whether the run is over."""
        return self.file(COMPLETE).is_file()

    def file(self, name: str) -> Path:
        return self.path / name

    def write(self, name: str, content: str | bytes) -> None:
        """Replace a whole file at once: no reader ever sees a part of it."""
        with naming(self.file(name)):
            write_whole(self.file(name), content)

    def append(self, row: Row, clients: Row | None = None) -> None:
        """Record a row, and before it the numbers of each client, if they were measured."""
        if clients is not None:
            label, seed = key_of(row)
            self._add_row(CLIENTS, {"label": label, "seed": seed, **clients})
        self._add_row(METRICS, row)
        for listener in self.listeners:
            listener.row(row)

    def leave_out(self, label: str, seed: int, rejections: Sequence[Rejection]) -> None:
        """Record whose work did not count in a round, and why."""
        for one in rejections:
            self._add_row(LEFT_OUT, {"label": label, "seed": seed, **one._asdict()})

    def log(self, text: str) -> None:
        self._line(LOG, f"{time.strftime('%Y-%m-%d %H:%M:%S')} {text}\n".encode())

    def ended(self, outcome: Outcome) -> None:
        """Record that one method is through with one seed."""
        self.settle()
        self.file(CHECKPOINTS).mkdir(exist_ok=True)
        entry = outcome.record()
        self._add(ENDED, json.dumps(entry | {PROOF: self._proof(entry, self._digests)}).encode())
        for listener in self.listeners:
            listener.ended(outcome)

    def conclude(self, outcomes: Sequence[Outcome]) -> None:
        """Record how all of them ended, which marks the run as over."""
        entries = [outcome.record() for outcome in outcomes]
        for k, entry in enumerate(entries):
            entry[PROOF] = self._proof(entry, self._digests, k, len(entries))
        self.write(COMPLETE, json.dumps(entries, indent=2) + "\n")

    def reopen(self, going: Collection[Key] = ()) -> None:
        """Make a run one that goes on: all that have ended stay so, but for those ``going`` on."""
        entries = [one.record() for one in self.outcomes() if one.key not in going]
        digests = digests_of({name: self._whole(name) for name in NEEDED})
        proven = [entry | {PROOF: self._proof(entry, digests)} for entry in entries]
        self.file(CHECKPOINTS).mkdir(exist_ok=True)
        self._rewrite(ENDED, [json.dumps(entry).encode() for entry in proven])
        self.file(COMPLETE).unlink(missing_ok=True)

    def settle(self) -> None:
        """Rows given so far survive a crash of the machine; :class:`BadFolder` if they are lost
        already, for somebody has removed, renamed or emptied their file.
        """
        for name in NEEDED:
            if file := self._open.get(name):
                with naming(self.file(name)):
                    sync(file.fileno())
                if not _still_at(self.file(name), file):
                    raise BadFolder(
                        f"{self.file(name)} was removed, renamed or changed while the run wrote "
                        "to it, and its rows are lost: the run stops. Run it anew"
                    )

    def keep(self, label: str, seed: int, last: int) -> None:
        """Drop what one method and seed recorded after ``last`` rounds."""
        for name, rounds in self.rounds_of((label, seed)).items():
            kept = last - 1 if name == LEFT_OUT else last  # where rounds are counted from 0
            if any(round > kept for round in rounds):
                self._cut(name, (label, seed), kept)

    def rounds_of(self, key: Key) -> dict[str, list[int]]:
        """The ``rounds`` of one label and seed, by file."""
        return {name: found.get(key, []) for name, found in self.rounds.items()}

    def mend(self, planned: Collection[Key] | None = None) -> list[str]:
        """Repair an unfinished journal and return what was dropped, in words.

        Lines that a crash cut short go, as do rows of no label and seed that is ``planned``,
        outcomes that were changed, or whose rows or models were, and all rows from the first on
        that is not as it was written, but for those that an outcome proves.
        """
        for name in (*NEEDED, LOG, ENDED):
            whole, newline, torn = self._content(name).rpartition(b"\n")
            if torn:
                self.write(name, whole + newline)
        found = {name: self._read(name) for name in NEEDED}
        dropped = [damage for _, _, damage in found.values() if damage]
        ended = set[Key]()
        if not self.complete:
            lined = {
                name: [(row, text) for row, text in rows if row]
                for name, (rows, *_) in found.items()
            }
            ended = self._disown(planned, digests_of(lined), not dropped, dropped)
        kept = dict[str, list[Lined]]()
        foreign = 0
        for name, (rows, sound, damage) in found.items():
            foreign += sum(row is not None and not _wanted(row, planned) for row, _ in rows)
            kept[name] = [
                (row, text)
                for number, (row, text) in enumerate(rows, 1)
                if row and _wanted(row, planned) and (number <= sound or key_of(row) in ended)
            ]
            if len(kept[name]) < len(rows) or damage:
                self._rewrite(name, [text for _, text in kept[name]])
        if foreign:
            dropped.append(f"{foreign} rows are of no method and seed of this run: removed")
        for name, sound_rows in kept.items():
            rounds = self.rounds[name] = dict[Key, list[int]]()
            for row, _ in sound_rows:
                rounds.setdefault(key_of(row), []).append(row["round"])
        self._digests = digests_of(kept)
        return dropped

    def arrange(self, order: Mapping[Key, int]) -> None:
        """Sort the rows by label and seed, where several processes have mixed them."""
        for name in NEEDED:
            rows = self._whole(name)
            ordered = sorted(rows, key=lambda entry: order.get(key_of(entry[0]), len(order)))
            if ordered != rows:
                self._rewrite(name, [text for _, text in ordered])

    def rows(self) -> list[Row]:
        """Every recorded row, without a last line that a crash cut short; none without a file.

        Raises :class:`BadFolder` if a line is not as it was written, or lines are missing.
        """
        return [row for row, _ in self._whole(METRICS)]

    def outcomes(self) -> list[Outcome]:
        """How the methods ended; of an unfinished run, those that have."""
        return [outcome for _, outcome in self._entries(self.complete)]

    def record(self) -> Record:
        """All of it; :class:`BadFolder` if it is not what was written."""
        complete = self.complete
        entries = self._entries(complete)  # before the rows, which may become more
        rows = {name: self._whole(name) for name in NEEDED}
        digests = digests_of(rows)
        for k, (entry, _) in enumerate(entries):
            place = (k, len(entries)) if complete else ()
            if entry.get(PROOF) in (None, self._proof(entry, digests, *place)):
                continue
            if self._entries(self.complete) != entries:  # the run went on meanwhile
                return self.record()
            raise BadFolder(
                f"{self.file(COMPLETE if complete else ENDED)}: how {_words(entry)} ended and its "
                f"rows in {METRICS} do not belong together: lines are lost, or one of the files "
                f"was changed. {self._remedy}"
            )
        metrics, left_out, clients = ([row for row, _ in rows[name]] for name in NEEDED)
        return Record(metrics, [outcome for _, outcome in entries], left_out, clients)

    def close(self) -> None:
        for listener in self.listeners:
            listener.close()
        for file in self._open.values():
            file.close()
        self._open.clear()
        self._seals.clear()

    @property
    def _remedy(self) -> str:
        if self.complete:
            return "Run it anew: undrift run SPEC --overwrite"
        return f"What is sound is kept and the rest is run again by: undrift resume {self.path}"

    def _proof(self, entry: Entry, digests: Digests, *place: int) -> str:
        """A digest of the run's identity, of an outcome, its rows and its ``place`` among all; of
        clients that were left out, and of each client's numbers, if there are any.
        """
        about = {key: value for key, value in entry.items() if key != PROOF}
        rows = digests.get((METRICS, key_of(about)), hashlib.sha256()).hexdigest()
        parts = [self.identity, about, rows, *place]
        for name in (LEFT_OUT, CLIENTS):
            if more := digests.get((name, key_of(about))):
                parts.append(more.hexdigest())
        text = json.dumps(parts, sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()

    def _check(self, name: str) -> Lines:
        """The lines of a file that is sealed; none if it does not exist."""
        return check(self._content(name), beginning(self.identity, name), self.sealed)

    def _content(self, name: str) -> bytes:
        """The content of a file, none if it does not exist; it may be somebody else's."""
        try:
            return read_plain(self.file(name), LARGEST)
        except (FileNotFoundError, NotADirectoryError):
            return b""
        except OSError as error:
            raise BadFolder(f"{self.file(name)} cannot be read: {error.strerror}") from None

    def _read(self, name: str) -> tuple[list[tuple[Row | None, bytes]], int, str]:
        """Rows with their lines, ``None`` for what is no row; how many are sound; what is wrong."""
        lines = self._check(name)
        rows = [(row_of(text, NEEDED[name]), text) for text in lines.texts]
        unread = next((k for k, (row, _) in enumerate(rows) if row is None), len(rows))
        if unread < lines.sound:  # written without a seal, by an earlier version
            path = self.file(name)
            return rows, unread, f"{path}:{unread + 1}: not a row of {path.stem}"
        return rows, lines.sound, self._damage(name, lines)

    def _damage(self, name: str, lines: Lines) -> str:
        """Where lines are not as they were written, in words; empty if they are."""
        if lines.broken is None:
            return ""
        before = f"the first {lines.sound} lines are" if lines.sound > 1 else "the first line is"
        sound = before if lines.sound else "no line before it is known to be"
        return (
            f"{self.file(name)}:{lines.broken}: changed, added or moved, or lines before it are "
            f"lost ({sound} sound)"
        )

    def _whole(self, name: str) -> list[Lined]:
        """Rows with their lines; :class:`BadFolder` unless all are as they were written."""
        rows, _, damage = self._read(name)
        if damage:
            raise BadFolder(f"{damage}. {self._remedy}")
        if name != LEFT_OUT:  # it has no infinite numbers, but reasons in any words
            rows = [(row and numbers(row), text) for row, text in rows]
        return [(row, text) for row, text in rows if row is not None]

    def _entries(self, complete: bool) -> list[tuple[Entry, Outcome]]:
        """Outcomes, as the file has them and as they are."""
        path = self.file(COMPLETE if complete else ENDED)
        if complete:
            if not path.exists():  # it goes on again
                return []
            found = parsed(self._content(COMPLETE))
        else:
            lines = self._check(ENDED)
            if damage := self._damage(ENDED, lines):
                raise BadFolder(f"{damage}. {self._remedy}")
            found = [*map(parsed, lines.texts)]
        entries: list[Any] = found if isinstance(found, list) else [None]
        known = [(entry, outcome) for entry in entries if (outcome := _outcome(entry))]
        if len(known) < len(entries):
            raise BadFolder(f"{path} cannot be read. {self._remedy}")
        return known

    def _disown(
        self,
        planned: Collection[Key] | None,
        digests: Digests,
        intact: bool,
        dropped: list[str],
    ) -> set[Key]:
        """Drop unsound outcomes, say so, and return the others. Older versions left no proof."""
        lines = self._check(ENDED)
        if damage := self._damage(ENDED, lines):
            dropped.append(damage)
        sound = dict[Key, bytes]()
        for text in lines.texts:
            entry = parsed(text)
            outcome = _outcome(entry)
            if outcome is None or outcome.key in sound:
                continue
            older = PROOF not in entry and not self.identity and intact and not damage
            proven = older or entry.get(PROOF) == self._proof(entry, digests)
            models = map(self.file, outcome.files.values())
            if proven and _wanted(entry, planned) and all(file.is_file() for file in models):
                sound[outcome.key] = text
            else:
                dropped.append(f"{_words(entry)}: its rows, outcome or model have been changed")
        if len(sound) < len(lines.texts) or damage:
            self._rewrite(ENDED, sound.values())
        return {*sound}

    def _cut(self, name: str, key: Key, last: int) -> None:
        """Drop the rows of a file about one label and seed after the round ``last``."""
        rows = [
            (row, text)
            for row, text in self._whole(name)
            if key_of(row) != key or row["round"] <= last
        ]
        self._rewrite(name, [text for _, text in rows])
        others = {place: digest for place, digest in self._digests.items() if place[0] != name}
        self._digests = others | digests_of({name: rows})

    def _add_row(self, name: str, row: Row) -> None:
        text = text_of(row)
        self._add(name, text)
        self._digests.setdefault((name, key_of(row)), hashlib.sha256()).update(text + b"\n")

    def _add(self, name: str, text: bytes) -> None:
        """Append a sealed line."""
        before = self._seals.get(name) or self._check(name).last
        seal = after(before, text)
        self._line(name, sealed(text, seal))
        self._seals[name] = seal

    def _rewrite(self, name: str, texts: Iterable[bytes]) -> None:
        """Replace the lines of a file that is sealed."""
        if file := self._open.pop(name, None):
            file.close()
        content, last = seal(texts, beginning(self.identity, name))
        self.write(name, content)
        self._seals[name] = last

    def _line(self, name: str, line: bytes) -> None:
        with naming(self.file(name)):
            file = self._open.get(name)
            if file is None:
                file = self._open[name] = io.FileIO(self.file(name), "a")
            size = file.seek(0, os.SEEK_END)
            try:
                while line:
                    line = line[file.write(line) :]
            except OSError:
                file.truncate(size)
                raise


def _wanted(found: Row | Entry, planned: Collection[Key] | None) -> bool:
    return planned is None or key_of(found) in planned


def _words(entry: Entry) -> str:
    return f"{entry['label']}, seed {entry['seed']}"


def _outcome(entry: Any) -> Outcome | None:
    """The outcome that a file has; ``None`` if it has none."""
    try:
        outcome = Outcome(**{key: value for key, value in entry.items() if key != PROOF})
    except (TypeError, AttributeError):
        return None
    return outcome if keyed(entry) and outcome.status in ENDS else None


def _still_at(path: Path, file: io.FileIO) -> bool:
    """Whether ``path`` is the open file, with all that was written to it."""
    ours = os.fstat(file.fileno())
    try:
        there = path.stat()
    except OSError:
        return False
    same = (there.st_dev, there.st_ino) == (ours.st_dev, ours.st_ino)
    return same and there.st_size == file.tell()
