"""A run is a folder: what was run, where, and what was measured."""

from __future__ import annotations

import dataclasses
import json
import math
import os
import time
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, TextIO

from undrift.runs.spec import Spec

FILES = {
    "spec.toml": "what was run, with every default written out",
    "environment.json": "versions and hardware",
    "metrics.jsonl": "one row per evaluation, appended as the run goes",
    "metrics.parquet": "the same rows as columns, once the run is over",
    "summary.json": "how each method ended, once the run is over",
    "log.txt": "what was said",
    "gap.png": "the curves",
}
COMPLETE = "summary.json"
NEEDED = {"label", "seed", "round", "vectors", "gradients"}
Row = dict[str, Any]


class BadFolder(ValueError):
    """Not a folder a run can be kept in, or read from; the message says what to do."""


@dataclasses.dataclass(frozen=True)
class Outcome:
    """How one method ended with one seed."""

    label: str
    method: str
    seed: int
    status: str
    """``done``, ``reached`` (the target), ``diverged``, ``failed`` or ``stopped`` (by the user)."""
    values: Mapping[str, Any]
    """The hyper-parameters it ran with."""
    note: str = ""


class Folder:
    """``ROOT/NAME``. Rows and log lines are on disk as soon as they are given."""

    def __init__(self, path: Path):
        self.path = path
        self._open: dict[str, TextIO] = {}

    @property
    def name(self) -> str:
        return self.path.name

    def file(self, name: str) -> Path:
        return self.path / name

    def state(self, spec: Spec) -> Literal["new", "same", "unfinished", "other"]:
        """What is in the folder, as seen from ``spec``."""
        if self.path.is_symlink() or (self.path.exists() and not self.path.is_dir()):
            raise BadFolder(f"{self.path} is not a folder; choose another name or --out")
        if not self.path.exists() or not any(self.path.iterdir()):
            return "new"
        if not self.file("spec.toml").is_file():
            raise BadFolder(f"{self.path} holds something else than a run; choose another name or --out")
        if self.document() != spec.document():
            return "other"
        return "same" if self.file(COMPLETE).is_file() else "unfinished"

    def document(self) -> dict[str, Any]:
        """The spec that was run, as TOML holds it."""
        try:
            return tomllib.loads(self.file("spec.toml").read_text())
        except FileNotFoundError:
            return {}
        except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
            raise BadFolder(f"{self.file('spec.toml')} cannot be read: {error}") from None

    def start(self, spec: Spec, environment: Mapping[str, Any], comments: list[str]) -> None:
        """Make the folder, or empty it of an earlier run; other files in it stay."""
        self.path.mkdir(parents=True, exist_ok=True)
        for name in FILES:
            self.file(name).unlink(missing_ok=True)
        head = "".join(f"# {comment}\n" for comment in comments)
        self.write("environment.json", json.dumps(environment, indent=2) + "\n")
        self.write("spec.toml", head + spec.toml())

    def write(self, name: str, text: str) -> None:
        """A whole file at once: no reader ever sees a part of it."""
        temporary = self.file(f".{name}.{os.getpid()}")
        try:
            temporary.write_text(text)
            temporary.replace(self.file(name))
        finally:
            temporary.unlink(missing_ok=True)

    def append(self, row: Mapping[str, Any]) -> None:
        self._line("metrics.jsonl", json.dumps({key: _finite(value) for key, value in row.items()}))

    def log(self, text: str) -> None:
        self._line("log.txt", f"{time.strftime('%Y-%m-%d %H:%M:%S')} {text}")

    def finish(self, outcomes: list[Outcome]) -> None:
        """The rows as Parquet, and the mark that the run is over."""
        self.close()
        import pyarrow
        from pyarrow import parquet

        parquet.write_table(pyarrow.Table.from_pylist(self.rows()), self.file("metrics.parquet"))
        self.write(COMPLETE, json.dumps([dataclasses.asdict(outcome) for outcome in outcomes], indent=2) + "\n")

    def close(self) -> None:
        for file in self._open.values():
            file.close()
        self._open.clear()

    def rows(self) -> list[Row]:
        """Every recorded row. A last line cut short by a crash is left out."""
        path = self.file("metrics.jsonl")
        try:
            lines = path.read_text().split("\n")
        except FileNotFoundError:
            raise BadFolder(f"{path} does not exist: {self.path} is not the folder of a run") from None
        except (OSError, UnicodeDecodeError) as error:
            raise BadFolder(f"{path} cannot be read: {error}") from None
        rows = []
        for number, line in enumerate(lines[:-1], 1):
            row = _parsed(line)
            if not (isinstance(row, dict) and row.keys() >= NEEDED and isinstance(row["label"], str)):
                raise BadFolder(f"{path}:{number}: not a row of metrics")
            rows.append(row)
        return rows

    def outcomes(self) -> list[Outcome]:
        """How the methods ended; nothing before the run is over."""
        try:
            return [Outcome(**entry) for entry in json.loads(self.file(COMPLETE).read_text())]
        except FileNotFoundError:
            return []
        except (ValueError, TypeError):
            raise BadFolder(f"{self.file(COMPLETE)} cannot be read") from None

    def _line(self, name: str, text: str) -> None:
        file = self._open.get(name)
        if file is None:
            file = self._open[name] = self.file(name).open("a")
        file.write(text + "\n")
        file.flush()


def _finite(value: Any) -> Any:
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _parsed(line: str) -> Any:
    try:
        return json.loads(line)
    except ValueError:
        return None
