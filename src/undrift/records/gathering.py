"""One run of several: parts of one, or runs that differ in nothing but seeds and methods."""

from __future__ import annotations

import dataclasses
import hashlib
import secrets
import shutil
from collections.abc import Mapping, Sequence
from functools import reduce
from operator import or_
from pathlib import Path
from typing import NamedTuple

from undrift.core.params import fits
from undrift.records import models
from undrift.records.folder import (
    CHECKPOINTS,
    DATA_OF,
    METRIC_SAMPLES,
    MODELS,
    SPECS,
    BadFolder,
    Folder,
    Script,
    checkpoint,
    flat,
    made,
    together,
)
from undrift.records.part import PART, WHOLE, RunPart
from undrift.records.rows import METRICS, NEEDED, Key, Outcome, Row, key_of, text_of
from undrift.spec.schema import FolderName, Table, Values, identity_of, normal

OWN = ("name", "seed", "method")
"""Keys of a spec in which runs that belong together may differ."""
NO_PLACE = (METRIC_SAMPLES, "note", "data", DATA_OF, "code", PART, SPECS)
"""Keys of environment.json that do not say where a run took place."""
DIGITS = 12
"""Of digests that are compared, and shown if they differ."""


class PairOnDisk(NamedTuple):
    """One method with one seed, as a run has it."""

    folder: Folder
    outcome: Outcome
    number: int
    """Of the method in that run."""
    rows: Mapping[str, list[Row]]
    """By file; where no seed changes the method, those of the seed that stands for it."""

    @property
    def curve(self) -> tuple[str, list[Row]]:
        """How it ended, and its rows, without what no two runs share."""
        rows = [{**row, "seed": None, "seconds": None} for row in self.rows[METRICS]]
        return self.outcome.status, rows


def gather(folders: Sequence[Folder], to: Path) -> list[str]:
    """Make one finished run of several, in a folder ``to`` that is not there yet.

    Returns remarks on what it was made from. Raises :class:`BadFolder` for runs that do not belong
    together, and writes nothing.
    """
    if to.exists():
        raise BadFolder(f"{to} is there already: remove it, or give another folder")
    pairs, remarks = [*map(_pairs, folders)], _refuse_others(folders)
    methods, seeds, found = dict[str, Values](), dict[int, None](), dict[Key, PairOnDisk]()
    for folder, own in zip(folders, pairs, strict=True):
        document = folder.document()
        methods |= {table["label"]: table for table in document["method"]}
        seeds |= dict.fromkeys(document["seed"])
        for key, pair in own.items():
            if (before := found.setdefault(key, pair)).curve != pair.curve:
                both = f"{before.folder.path} and {folder.path} both have {key[0]}"
                raise BadFolder(f"{both} with seed {key[1]}, and not with the same rows")
    # The order in which a single run would have recorded them.
    keys = WHOLE.deal([*methods], [*seeds])
    _refuse_missing(folders, [key for key in keys if key not in found])
    document = folders[0].document() | {"seed": [*seeds], "method": [*methods.values()]}
    document["name"] = to.name if fits(to.name, FolderName) else document["name"]
    stands, ended, numbers = _stand_ins(document, keys, found), dict[Key, Outcome](), [*methods]
    into = Folder(to.with_name(f".{to.name}.{secrets.token_hex(4)}.part"))
    try:
        remarks += _begin(into, document, folders)
        for name in NEEDED:
            rows = [row for key in keys if stands[key] == key for row in found[key].rows[name]]
            if rows or name == METRICS:
                into.write(name, b"".join(text_of(row) + b"\n" for row in rows))
        # Those that stand for others first: an outcome names the files of its stand-in.
        for key in sorted(keys, key=lambda key: stands[key] != key):
            pair, first = found[key], found[stands[key]]
            if pair is first:
                ended[key] = _take(into, pair, numbers.index(key[0]), remarks)
                continue
            ended[key] = dataclasses.replace(
                ended[stands[key]], seed=key[1], same_as=stands[key][1]
            )
            if pair.curve != first.curve:
                both = f"{first.folder.path} and {pair.folder.path}"
                remarks.append(f"{key[0]}: no seed changes it, and yet rows differ in {both}.")
        for text in (f"Gathered from {_paths(folders)}.", *remarks):
            into.log(text)
        into.finish([ended[key] for key in keys])
        into.path.rename(to)  # all of it appears at once
    finally:
        into.close()
        shutil.rmtree(into.path, ignore_errors=True)
    return remarks


def _pairs(folder: Folder) -> dict[Key, PairOnDisk]:
    """What a finished run has."""
    if not folder.complete:
        path = folder.path
        raise BadFolder(f"{path} is not finished: undrift resume {path}, then gather again")
    record, found = folder.record(), dict[tuple[str, Key], list[Row]]()
    for name, rows in zip(NEEDED, (record.rows, record.left_out, record.clients), strict=True):
        for row in rows:
            found.setdefault((name, key_of(row)), []).append(row)
    numbers, pairs = (
        [table["label"] for table in folder.document()["method"]],
        dict[Key, PairOnDisk](),
    )
    for one in record.outcomes:
        key = one.label, one.seed if one.same_as is None else one.same_as
        own = {name: found.get((name, key), []) for name in NEEDED}
        pairs[one.key] = PairOnDisk(folder, one, numbers.index(one.label), own)
    return pairs


def _facts(folder: Folder) -> dict[str, Values]:
    """What runs that belong together share: of methods and of seeds that both have, and else ("")
    of all; ``None`` is not known.
    """
    about, document = folder.environment, normal(folder.document())
    found = {f"method {one['label']}": flat(one, f"{one['label']}: ") for one in document["method"]}
    found[""] = flat({key: value for key, value in document.items() if key not in OWN})
    found[""] |= {key: about.get(key) or "nothing" for key in (METRIC_SAMPLES, "note")}
    data = {f"data of seed {seed}": digest for seed, digest in about.get(DATA_OF, {}).items()}
    found |= {name: {} for name in data}
    files = {name: hashlib.sha256(text).hexdigest() for name, text in _sources(folder).items()}
    digests = {**(data or {"data": about.get("data")}), **about.get("code", {}), **files}
    for name, digest in digests.items():
        found[name if name in found else ""][name] = digest and digest[:DIGITS]
    return found


def _refuse_others(folders: Sequence[Folder]) -> list[str]:
    """Refuse runs that do not belong together; a remark on what cannot be compared."""
    known, unknown = dict[str, tuple[Folder, Values]](), dict[str, None]()
    for folder in folders:
        for what, facts in _facts(folder).items():
            first, before = known.setdefault(what, (folder, facts))
            both = {
                key: (before.get(key, "not set"), facts.get(key, "not set"))
                for key in before | facts
            }
            # Data without a digest are no others: whoever gathers them is told.
            unknown |= dict.fromkeys(key for key, values in both.items() if None in values)
            apart = {k: v for k, v in both.items() if v[0] != v[1] and k not in unknown}
            if apart:
                told = [f"{key} is {one} and {other}" for key, (one, other) in apart.items()]
                paths = f"{first.path} and {folder.path}"
                raise BadFolder(f"{paths} do not belong together: {'; '.join(told[:5])}")
    return [f"{', '.join(unknown)}: cannot be compared."] if unknown else []


def _refuse_missing(folders: Sequence[Folder], lacking: Sequence[Key]) -> None:
    """Refuse to go on without something, with the commands that run it."""
    if not lacking:
        return
    (label, seed), more = lacking[0], f" and {len(lacking) - 1} more" if len(lacking) > 1 else ""
    folder = max(folders, key=lambda folder: folder.part.of)
    document, ways = folder.document(), list[str]()
    for part in [RunPart(k + 1, folder.part.of) for k in range(folder.part.of)]:
        dealt = part.deal([one["label"] for one in document["method"]], document["seed"])
        if not {*dealt}.isdisjoint(lacking):
            spec = f"{folder.file('spec.toml')} --part {part.number}/{part.of}"
            ways.append(f"{part} is missing: undrift run {spec} --out {folder.path.parent}")
    remedy = "; ".join(ways) or "Run every method with every seed, or gather fewer runs"
    raise BadFolder(f"{label} with seed {seed}{more}: in none of {_paths(folders)}. {remedy}")


def _stand_ins(
    document: Table, keys: Sequence[Key], found: Mapping[Key, PairOnDisk]
) -> dict[Key, Key]:
    """The pair that is taken for each: of a method that no seed changes the first, as in a single
    run; parts that had it with different seeds have each run it.
    """
    first, alike = dict[str, Key](), document.get("vary") == ["draws"]
    for label, seed in keys if alike and not document.get("callbacks") else ():
        outcome = found[label, seed].outcome
        if outcome.same_as is None and not outcome.seeded:
            first.setdefault(label, (label, seed))
    return {key: first.get(key[0], key) for key in keys}


def _begin(into: Folder, document: Values, folders: Sequence[Folder]) -> list[str]:
    """Write what the run is made from; a remark on places that differ."""
    every, apart = [folder.environment for folder in folders], list[str]()
    about = dict(every[0]) | {"code": reduce(or_, [one.get("code", {}) for one in every])}
    about.pop(PART, None)
    for key in [key for key in about if key not in NO_PLACE]:
        values = [*dict.fromkeys(str(one.get(key)) for one in every)]
        if len(values) > 1:
            about[key] = ", ".join(values)
            apart.append(f"{key} is {about[key]}")
    if DATA_OF in about:
        data = reduce(or_, [one[DATA_OF] for one in every])
        about[DATA_OF] = {str(seed): data[str(seed)] for seed in document["seed"]}
        about["data"] = reduce(together, about[DATA_OF].values())
    tables = {key: value for key, value in document.items() if key != "name"}
    sources = dict(sorted(reduce(or_, map(_sources, folders)).items()))
    recipe = Script(document["name"], tables, sources)
    # As the run would have it if it were begun from spec.toml: with more rounds it goes on.
    of_spec = identity_of(document, sources)
    about[SPECS] = [recipe.identity if folders[0].from_python else of_spec]
    into.start(recipe, about, folders[0].partition)
    return [f"Not all was run in one place: {'; '.join(apart)}."] if apart else []


def _take(into: Folder, pair: PairOnDisk, number: int, remarks: list[str]) -> Outcome:
    """Copy the models and the last state of a pair, under the number of its method here."""
    from undrift.engines.checkpoint import BadCheckpoint, renamed

    folder, outcome, (label, seed) = pair.folder, pair.outcome, pair.outcome.key
    files, stem = dict[str, str](), models.stem(number, label, seed)
    for which, file in outcome.files.items():
        # Whatever the outcome in somebody else's folder says, only models are taken.
        source = folder.file(MODELS) / Path(file).name
        files[which] = f"{MODELS}/{stem}-{source.name.rpartition('-')[2]}"
        made(into.file(MODELS))
        shutil.copyfile(source, into.file(files[which]))
    for state in folder.file(CHECKPOINTS).glob(f"{checkpoint(pair.number, seed)}-*.safetensors"):
        name = f"{checkpoint(number, seed)}-{state.name.rpartition('-')[2]}"
        try:
            identities = folder.identity_of(label, seed), into.identity_of(label, seed)
            renamed(state, into.file(CHECKPOINTS) / name, *identities)
        except BadCheckpoint as error:
            remarks.append(f"{error.path}: {error.reason}; left out, so that it cannot go on.")
    return dataclasses.replace(outcome, files=files)


def _sources(folder: Folder) -> dict[str, bytes]:
    """The users' Python files, by their place."""
    found = {file.relative_to(folder.path).as_posix(): file for file in folder.path.rglob("*.py")}
    return {name: found[name].read_bytes() for name in sorted(found)}


def _paths(folders: Sequence[Folder]) -> str:
    return ", ".join(str(folder.path) for folder in folders)
