"""The cache of runs: a folder per method, setting and seed, named by a hash of what decides it."""

from __future__ import annotations

import dataclasses
import hashlib
import io
import json
import time
import zipfile
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from undrift._files import opened, write_whole
from undrift.cli.output import say
from undrift.core.cohort import Sampling
from undrift.core.params import fields
from undrift.core.problem import Samples
from undrift.data.files import BROKEN, SWELL, allowance, brief
from undrift.records.folder import (
    CHECKPOINTS,
    COMPLETE,
    METRIC_SAMPLES,
    BadFolder,
    Busy,
    Folder,
    Outcome,
    Row,
)
from undrift.records.rows import METRICS, NEEDED
from undrift.spec.schema import Entry, Settings, Spec

EDITION = 1
"""Raised when a change of undrift makes every earlier run worthless."""
PRECISIONS = ("bf16", "tf32", "f32")
PACKED = ("spec.toml", "environment.json", *NEEDED, COMPLETE)
"""What travels: everything but the checkpoints."""
FINAL = ("diverged", "stuck", "failed")
"""Ends that more rounds do not change."""


@dataclasses.dataclass(frozen=True)
class Want:
    """One run that an item needs: a method of a spec with one seed, up to round ``rounds``."""

    spec: Spec
    entry: Entry
    seed: int
    rounds: int
    strict: bool = False
    """Whether only its precision serves; otherwise a run of any precision does."""
    start: tuple[Entry, int] | None = None
    """A method, and how many rounds of it come first."""

    @property
    def precision(self) -> str | None:
        """Of the products, for problems that have a choice."""
        return self.spec.problem.precision

    @property
    def key(self) -> str:
        return self.key_at(self.precision)

    def key_at(self, precision: str | None) -> str:
        """The hash for a run in that precision.

        Labels, rounds, the device and the folder of the data do not matter.
        """
        problem = without_defaults(self.spec.problem, {"folder"})
        if precision is not None:
            problem["precision"] = precision
        usual = {f.name: f.default for f in dataclasses.fields(Settings)}
        usual["device"] = self.spec.device
        setting = self.spec.setting(self.entry)
        decides = {
            "edition": EDITION,
            "method": _method(self.entry),
            "problem": {"name": type(self.spec.problem).name, **problem},
            "setting": {name: value for name, value in setting.items() if value != usual[name]},
            "objective": self.entry.objective,
            "every": self.spec.every or 1,
            "seed": self.seed,
        }
        if self.start:
            entry, rounds = self.start
            decides["start"] = {"method": _method(entry), "rounds": rounds}
        text = json.dumps(decides, sort_keys=True, default=_plain)
        return hashlib.sha256(text.encode()).hexdigest()[:20]

    def __str__(self) -> str:
        values = vars(self.spec.problem)
        parts = [values.get("data", self.spec.problem_name)]
        if split := values.get("partition"):
            parts.append(split if split == "iid" else f"{split} {values['beta']:g}")
        if clients := values.get("clients"):
            parts.append(f"{clients} clients")
        return f"{self.entry.label} ({', '.join(parts)}) seed {self.seed}, {self.rounds} rounds"

    @property
    def first(self) -> Want:
        """The same with the first seed."""
        return dataclasses.replace(self, seed=0)

    @property
    def alone(self) -> Spec:
        """A spec of this run and nothing else."""
        given = {**self.entry.given, "rounds": self.rounds}
        entry = dataclasses.replace(self.entry, rounds=self.rounds, given=given)
        return dataclasses.replace(
            self.spec, name=self.key, seed=[self.seed], entries=(entry,), target=None
        )


class Cache:
    """The runs under ``ROOT/runs``."""

    def __init__(self, root: Path):
        self.root = root / "runs"

    def folder(self, key: str) -> Folder:
        return Folder(self.root / key)

    def found(self, want: Want) -> KeptRun | None:
        """The kept run that serves, or the one with the most rounds; ``None`` without rows."""
        if not self.root.is_dir():
            return None
        others = () if want.precision is None or want.strict else PRECISIONS
        folders = [self.folder(want.key_at(p)) for p in dict.fromkeys([want.precision, *others])]
        kept = [KeptRun(folder) for folder in folders if folder.path.is_dir()]
        return max(
            (k for k in kept if k.rows),
            key=lambda k: (k.over(want.rounds), k.last),
            default=None,
        )

    def serves(self, want: Want) -> bool:
        """Whether nothing is left to run, as with the first seed where no seed changes the run."""
        kept = self.found(want)
        if kept is None and want.seed:
            first = self.found(want.first)
            kept = first if first and not first.seeded else None
        return kept is not None and kept.over(want.rounds)

    def at_work(self, want: Want) -> bool:
        """Whether another process is running it."""
        folder = self.folder(want.key)
        with suppress(Busy, FileNotFoundError):
            folder.lock()
            folder.close()
            return False
        return folder.path.is_dir()

    def refuse_other_images(self, data: str, note: str) -> None:
        """Raise if kept runs of this data set are on other images: JPEG files, or originals."""
        kept = [self.folder(path.name) for path in self.root.glob("*")]
        same = [run for run in kept if run.document().get("problem", {}).get("data") == data]
        if others := {str(run.environment.get("note", "originals")) for run in same} - {note}:
            raise ValueError(
                f"the runs in {self.root} are on other images of {data} ({', '.join(others)}, here "
                f"{note}): their accuracies cannot stand in one table; give another --out"
            )

    def pack(self, file: Path) -> int:
        """Write all runs to one file, without checkpoints; their number."""
        runs = sorted(rows.parent for rows in self.root.glob(f"*/{METRICS}"))
        content = io.BytesIO()
        with zipfile.ZipFile(content, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive:
            for path in (run / name for run in runs for name in PACKED):
                if path.is_file():
                    archive.write(path, path.relative_to(self.root))
        write_whole(file, content.getvalue())
        return len(runs)

    def unpack(self, file: Path) -> int:
        """Take over the runs of a pack that are longer than those here; their number."""
        taken = 0
        for key, files in sorted(packed(file).items()):
            here = self.folder(key)
            if len(here.record().rows) >= files[METRICS].count(b"\n"):
                continue
            taken += 1
            for name in PACKED:
                here.file(name).unlink(missing_ok=True)
            for name, content in files.items():
                here.write(name, content)
        return taken


def packed(file: Path) -> dict[str, dict[str, bytes]]:
    """The runs of a pack, each with the content of its files; anything else is refused."""
    found: dict[str, dict[str, bytes]] = {}
    try:
        with opened(file) as content, zipfile.ZipFile(content) as archive:
            left = allowance(file)
            for name in archive.namelist():
                key, _, of_run = name.partition("/")
                if not (len(key) == 20 and key.isalnum() and of_run in PACKED):
                    raise _no_pack(file, f"it holds {name!r}")
                with archive.open(name) as member:
                    found.setdefault(key, {})[of_run] = whole = member.read(left + 1)
                left -= len(whole)
                if left < 0:
                    raise _no_pack(file, f"it unpacks to more than {SWELL} times its size")
    except BadFolder:
        raise
    except BROKEN as error:
        raise _no_pack(file, brief(error)) from None
    return {key: files for key, files in found.items() if METRICS in files}


def _no_pack(file: Path, reason: object) -> BadFolder:
    return BadFolder(f"{file} is not a pack of runs, as --pack writes it: {reason}")


class KeptRun:
    """The records of one run."""

    def __init__(self, folder: Folder):
        self.folder = folder
        found = folder.record()
        self.rows = found.rows
        self.outcome: Outcome | None = next(iter(found.outcomes), None)

    @property
    def last(self) -> int:
        return self.rows[-1]["round"] if self.rows else -1

    @property
    def final(self) -> bool:
        return self.outcome is not None and self.outcome.status in FINAL

    @property
    def seeded(self) -> bool:
        """Whether another seed may change it."""
        return self.outcome is None or self.outcome.seeded

    def over(self, rounds: int) -> bool:
        """Whether it has so many rounds, or ended by itself."""
        return self.final or self.last >= rounds

    def until(self, rounds: int) -> list[Row]:
        """The rows up to a round."""
        return [row for row in self.rows if row["round"] <= rounds]


def begin(folder: Folder, want: Want, note: str, samples: Samples | None) -> None:
    """Prepare the run's folder, which is locked, for rows."""
    from undrift.runs.environment import environment

    if any(folder.file(CHECKPOINTS).glob("*.safetensors")):
        folder.resume()
        folder.file(COMPLETE).unlink(missing_ok=True)  # it holds for the rows so far
        folder.write("spec.toml", want.alone.toml())
        return
    if folder.file(METRICS).is_file():  # as of a pack, which has no checkpoints
        say("Its rows have no checkpoint to go on from: they are dropped, and it begins anew.")
    known: dict[str, object] = {
        "date": time.strftime("%Y-%m-%d"),
        **({"precision": want.precision} if want.precision else {}),
        **({"note": note} if note else {}),
        METRIC_SAMPLES: samples,
        "key": want.key,
    }
    folder.start(want.alone, environment(want.spec.device) | known)


def without_defaults(record: object, left_out: Iterable[str] = ()) -> dict[str, object]:
    """The fields of a record that differ from their defaults, so new options leave hashes alone."""
    defaults = {f.name: f.default for f in fields(type(record))}
    found = {name: getattr(record, name) for name in defaults}
    return {name: v for name, v in found.items() if name not in left_out and v != defaults[name]}


def _method(entry: Entry) -> dict[str, object]:
    return {"name": type(entry.method).__name__, **without_defaults(entry.method)}


def _plain(value: object) -> dict[str, object]:
    if isinstance(value, Sampling):
        return without_defaults(value)
    return {"name": type(value).__name__, **without_defaults(value)}
