"""The files of a run that grow: rows of metrics, outcomes and the log."""

from __future__ import annotations

import hashlib
import io
import json
import os
import shutil
import time
import warnings
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from undrift._files import naming, read_json, read_plain, sync, write_whole
from undrift.core.faults import Rejection
from undrift.records.rows import (
    CLIENTS,
    ENDS,
    LEFT_OUT,
    METRICS,
    NEEDED,
    Key,
    Outcome,
    Row,
    key_of,
    row_of,
    text_of,
)

LOG, PARQUET = "log.txt", "metrics.parquet"
COMPLETE = "summary.json"
CHECKPOINTS = "checkpoints"
"""The folder an unfinished run continues from; removed once the run is finished."""
ENDED = f"{CHECKPOINTS}/outcomes.jsonl"
PARTS = f"{CHECKPOINTS}/parts"
"""The folder of journals of jobs, each with one method and seed, until they are gathered."""
LARGEST = 1 << 31
"""Bytes of a file that is read: some million rows."""
ANEW = "Run it anew: undrift run SPEC --overwrite"
DIGESTED = ("spec.toml", "environment.json", "partition.json", *NEEDED, PARQUET)
"""Files whose digests are in the summary, besides a user's Python files; models have their own."""


class RunRecord(NamedTuple):
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


class Journal:
    """Rows and log lines are on disk as soon as they are given."""

    def __init__(self, path: Path):
        self.path = path
        self.rounds: dict[tuple[str, Key], list[int]] = {}
        """Of the rows that an interrupted run has in each file, of each label and seed."""
        self._open: dict[str, io.FileIO] = {}

    @property
    def complete(self) -> bool:
        """Whether the run is over."""
        return self.file(COMPLETE).is_file()

    def file(self, name: str) -> Path:
        return self.path / name

    def write(self, name: str, content: str | bytes) -> None:
        """Replace a whole file at once: no reader ever sees a part of it."""
        # A handle to the old file would write rows that nobody can find.
        if file := self._open.pop(name, None):
            file.close()
        write_whole(self.file(name), content)

    def append(self, row: Row, clients: Row | None = None) -> None:
        """Record a row, and before it the numbers of each client, if they were measured."""
        # A row counts as measured once it is in METRICS, so what belongs to it must be there.
        if clients is not None:
            label, seed = key_of(row)
            self._line(CLIENTS, text_of({"label": label, "seed": seed, **clients}))
        self._line(METRICS, text_of(row))

    def leave_out(self, label: str, seed: int, rejections: Sequence[Rejection]) -> None:
        """Record whose work did not count in a round, and why."""
        for one in rejections:
            self._line(LEFT_OUT, text_of({"label": label, "seed": seed, **one._asdict()}))

    def log(self, text: str) -> None:
        self._line(LOG, f"{time.strftime('%Y-%m-%d %H:%M:%S')} {text}".encode())

    def ended(self, outcome: Outcome) -> None:
        """Record that one method is through with one seed."""
        # What has ended is never run again: its rows must survive a crash before that is written.
        self.settle()
        self.file(CHECKPOINTS).mkdir(exist_ok=True)
        self._line(ENDED, json.dumps(vars(outcome)).encode())

    def conclude(self, outcomes: Sequence[Outcome]) -> None:
        """Record how all of them ended and the digests of files; this marks the run as over."""
        found = {"outcomes": [*map(vars, outcomes)], "sha256": self.digests()}
        self.write(COMPLETE, json.dumps(found, indent=2) + "\n")

    def reopen(self, going: Collection[Key] = ()) -> None:
        """Make a run one that goes on: all that have ended stay so, but for those ``going`` on."""
        kept = [vars(one) for one in self.outcomes() if one.key not in going]
        # In this order: without either file all methods would begin again.
        self.write(ENDED, "".join(json.dumps(entry) + "\n" for entry in kept))
        self.file(COMPLETE).unlink(missing_ok=True)

    def settle(self) -> None:
        """Rows given so far survive a crash of the machine; :class:`BadFolder` if they are lost
        already, for somebody has removed, renamed or emptied their file.
        """
        for name, file in self._open.items():
            if name not in NEEDED:
                continue
            path = self.file(name)
            with naming(path):
                sync(file.fileno())
            whole, own = False, os.fstat(file.fileno())
            with suppress(OSError):
                whole = os.path.samestat(path.stat(), own) and own.st_size == file.tell()
            if not whole:
                raise BadFolder(
                    f"{path} was removed, renamed or changed while the run wrote to it, and its "
                    "rows are lost: the run stops. Run it anew"
                )

    def keep(self, label: str, seed: int, last: int) -> None:
        """Drop what one method and seed recorded after ``last`` rounds."""
        key = label, seed
        for name in NEEDED:
            kept = last - 1 if name == LEFT_OUT else last  # where rounds are counted from 0
            if any(round > kept for round in self.rounds.get((name, key), ())):
                rows = self.rows(name)
                self._rewrite(name, (r for r in rows if key_of(r) != key or r["round"] <= kept))

    def split(self, names: Mapping[Key, str]) -> dict[Key, Journal]:
        """Journals for some methods and seeds, each with what it has recorded so far."""
        parts = {key: Journal(self.file(PARTS) / name) for key, name in names.items()}
        for part in parts.values():
            part.path.mkdir(parents=True, exist_ok=True)
        for name in NEEDED:
            rows = self.rows(name)
            moving = [row for row in rows if key_of(row) in parts]
            for key in {*map(key_of, moving)}:
                parts[key]._rewrite(name, (row for row in moving if key_of(row) == key))
            # In this order: a line in both files counts once, one in neither would be lost.
            if moving:
                self._rewrite(name, (row for row in rows if key_of(row) not in parts))
        return parts

    def gather(self) -> None:
        """Take in what jobs have recorded, and remove their journals."""
        if not self.file(PARTS).is_dir():
            return
        for name in (*NEEDED, ENDED):
            if lines := self._lines(name):
                self.write(name, b"".join(line + b"\n" for line in lines))
        # A job that is still there finds its journal gone, and stops: see settle.
        shutil.rmtree(self.file(PARTS))

    def mend(self) -> None:
        """Drop last lines that a crash cut short, and learn which rounds have rows."""
        self.gather()
        for name in (*NEEDED, LOG, ENDED):
            whole, newline, torn = self._content(name).rpartition(b"\n")
            if torn:
                self.write(name, whole + newline)
        self.rounds.clear()
        for name in NEEDED:
            for row in self.rows(name):
                self.rounds.setdefault((name, key_of(row)), []).append(row["round"])

    def rows(self, name: str = METRICS) -> list[Row]:
        """Every row of a file, without a last line that a crash cut short.

        Raises :class:`BadFolder` if a line is none.
        """
        rows = []
        for number, line in enumerate(self._lines(name), 1):
            row = row_of(line, NEEDED[name])
            if row is None:
                path = self.file(name)
                raise BadFolder(f"{path}:{number}: not a row of {path.stem}. {ANEW}")
            rows.append(row)
        return rows

    def news(self, at: int) -> tuple[list[Row], int]:
        """The rows behind byte ``at`` of their file, and where the next ones will begin."""
        lines = []
        with suppress(FileNotFoundError), self.file(METRICS).open("rb") as file:
            file.seek(at)
            lines = [line for line in file if line.endswith(b"\n")]
        found = [row for line in lines if (row := row_of(line, NEEDED[METRICS]))]
        return found, at + sum(map(len, lines))

    def outcomes(self) -> list[Outcome]:
        """How the methods ended; of an unfinished run, those that have."""
        name = COMPLETE if self.complete else ENDED
        try:
            if self.complete:
                entries = read_json(self._content(COMPLETE))["outcomes"]
            else:
                entries = [*map(read_json, self._lines(ENDED))]
            found = [Outcome(**entry) for entry in entries]
            sound = [
                isinstance(one.label, str) and isinstance(one.seed, int) and one.status in ENDS
                for one in found
            ]
            if not all(sound):
                raise ValueError(name)
        except (ValueError, TypeError, KeyError):
            raise BadFolder(f"{self.file(name)} cannot be read. {ANEW}") from None
        return found

    def record(self) -> RunRecord:
        """All of it; warns of files that are not as the finished run left them."""
        outcomes = self.outcomes()  # before the rows, which may become more
        metrics, left_out, clients = map(self.rows, NEEDED)
        if self.complete:
            now = self.digests()
            known = read_json(self._content(COMPLETE)).get("sha256", {})
            # A pack of runs leaves a user's code behind.
            left_behind = {name for name in known if name.endswith(".py") and name not in now}
            changed = [n for n in known if now.get(n) != known[n] and n not in left_behind]
            if changed:
                text = f"{self.path}: {', '.join(changed)} changed since the run ended"
                warnings.warn(text, stacklevel=3)
        return RunRecord(metrics, outcomes, left_out, clients)

    def digests(self) -> dict[str, str]:
        """The SHA-256 of every file that there is, but for models, which have their own."""
        files = [*map(self.file, DIGESTED), *self.path.glob("*.py")]
        there = [file.name for file in files if file.is_file()]
        return {name: hashlib.sha256(self._content(name)).hexdigest() for name in there}

    def close(self) -> None:
        for file in self._open.values():
            file.close()
        self._open.clear()

    def _content(self, name: str) -> bytes:
        """The content of a file, none if it does not exist; it may be somebody else's."""
        try:
            return read_plain(self.file(name), LARGEST)
        except (FileNotFoundError, NotADirectoryError):
            return b""
        except OSError as error:
            raise BadFolder(f"{self.file(name)} cannot be read: {error.strerror}") from None

    def _lines(self, name: str) -> list[bytes]:
        """The lines of a file and of those of jobs, without last ones that a crash cut short."""
        lines = self._content(name).split(b"\n")[:-1]
        if parts := sorted(self.file(PARTS).glob("*/")):
            lines += [line for part in parts for line in Journal(part)._lines(name)]
            lines = [*dict.fromkeys(lines)]  # a line that is on its way is in two files
        return lines

    def _rewrite(self, name: str, rows: Iterable[Row]) -> None:
        self.write(name, b"".join(text_of(row) + b"\n" for row in rows))

    def _line(self, name: str, line: bytes) -> None:
        line += b"\n"
        with naming(self.file(name)):
            file = self._open.get(name)
            if file is None:
                file = self._open[name] = io.FileIO(self.file(name), "a")
            while line:  # a disk that is full may take a part of it, which mend drops
                line = line[file.write(line) :]
