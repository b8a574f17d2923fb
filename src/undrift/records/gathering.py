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

from undrift.core.params import BadParameters, fits
from undrift.records import models
from undrift.records.differences import curves
from undrift.records.folder import (
    CHECKPOINTS,
    METRIC_SAMPLES,
    MODELS,
    SPECS,
    BadFolder,
    Folder,
    Script,
    checkpoint,
    digests,
    flat,
    made,
)
from undrift.records.part import PART, WHOLE, RunPart
from undrift.records.rows import NEEDED, Key, Outcome, text_of
from undrift.spec.schema import FolderName, Values, identity_of, normal

OWN = ("name", "seed", "method")
"""Keys of a spec in which runs that belong together may differ."""
NO_PLACE = (METRIC_SAMPLES, "note", "data", "code", PART, SPECS)
"""Keys of environment.json that do not say where a run took place."""
SHOWN = 12
"""Digits of a digest in a sentence."""
UNSET = "not set"


def gather(folders: Sequence[Folder], to: Path) -> list[str]:
    """Make one finished run of several, in a folder ``to`` that is not there yet.

    Returns remarks on what it was made from. Raises :class:`BadFolder` for runs that do not belong
    together, and writes nothing.
    """
    if not folders:
        raise BadParameters("gather", {"folders": "no folders: give those of one run or more"})
    if to.exists():
        raise BadFolder(f"{to} is there already: remove it, or give another folder")
    for path in [folder.path for folder in folders if not folder.complete]:
        raise BadFolder(f"{path} is not finished: undrift resume {path}, then gather again")
    remarks, found = _refuse_others(folders), _outcomes(folders)
    documents = [folder.document() for folder in folders]
    methods = {table["label"]: table for one in documents for table in one["method"]}
    seeds = [*dict.fromkeys(seed for one in documents for seed in one["seed"])]
    # The order in which a single run would have recorded them.
    keys = WHOLE.deal([*methods], seeds)
    _refuse_missing(folders, [key for key in keys if key not in found])
    document = documents[0] | {"seed": seeds, "method": [*methods.values()]}
    document["name"] = to.name if fits(to.name, FolderName) else document["name"]
    # A single run has a method that no seed changes with the first seed alone; parts that had it
    # with different seeds have each run it.
    first, alike = dict[str, Key](), document.get("vary") == ["draws"]
    for key in keys if alike and not document.get("callbacks") else ():
        if found[key][1].same_as is None and not found[key][1].seeded:
            first.setdefault(key[0], key)
    ran = [key for key in keys if first.get(key[0], key) == key]
    into = Folder(to.with_name(f".{to.name}.{secrets.token_hex(4)}.part"))
    numbers = {
        (folder, table["label"]): number
        for folder, one in zip([into, *folders], [document, *documents], strict=True)
        for number, table in enumerate(one["method"])
    }
    try:
        remarks += _begin(into, document, folders)
        for name in NEEDED:
            rows = {folder.path: curves(folder.rows(name)) for folder in folders}
            own = [rows[found[key][0].path].get(key[0], {}).get(key[1], []) for key in ran]
            if any(own):
                into.write(name, b"".join(text_of(row) + b"\n" for curve in own for row in curve))
        ended = {key: _take(into, *found[key], numbers, remarks) for key in ran}
        for label, seed in set(keys).difference(ran):
            one = ended[first[label]]
            ended[label, seed] = dataclasses.replace(one, seed=seed, same_as=one.seed)
        for text in (f"Gathered from {_paths(folders)}.", *remarks):
            into.log(text)
        into.finish([ended[key] for key in keys])
        into.path.rename(to)  # all of it appears at once
    finally:
        into.close()
        shutil.rmtree(into.path, ignore_errors=True)
    return remarks


def _outcomes(folders: Sequence[Folder]) -> dict[Key, tuple[Folder, Outcome]]:
    """How all methods ended, and where; refuses two ends of one method."""
    found = dict[Key, tuple[Folder, Outcome]]()
    for folder in folders:
        for one in folder.record().outcomes:
            at, before = found.setdefault(one.key, (folder, one))
            if (before.status, before.model) != (one.status, one.model):
                both = f"{at.path} and {folder.path} both have {one.label} with seed {one.seed}"
                raise BadFolder(f"{both}, and not with the same last model")
    return found


def _facts(folder: Folder) -> dict[str, Values]:
    """What runs that belong together share: of every method and the data of every seed that both
    have, and else ("") of all.
    """
    about, document = folder.environment, normal(folder.document())
    found = {f"method {one['label']}": flat(one, f"{one['label']}: ") for one in document["method"]}
    found[""] = flat({key: value for key, value in document.items() if key not in OWN})
    files = {name: hashlib.sha256(text).hexdigest() for name, text in _sources(folder).items()}
    for name, digest in (digests(about) | files).items():
        of = name if name.startswith(("method ", "data of ")) else ""
        found.setdefault(of, {})[name] = str(digest)[:SHOWN]
    return found


def _refuse_others(folders: Sequence[Folder]) -> list[str]:
    """Refuse runs that do not belong together; a remark on what cannot be compared."""
    known = dict[str, tuple[Folder, Values]]()
    for folder in folders:
        for what, facts in _facts(folder).items():
            first, before = known.setdefault(what, (folder, facts))
            both = {k: (before.get(k, UNSET), facts.get(k, UNSET)) for k in before | facts}
            if told := [
                f"{k} is {one} and {other}" for k, (one, other) in both.items() if one != other
            ]:
                paths = f"{first.path} and {folder.path}"
                raise BadFolder(f"{paths} do not belong together: {'; '.join(told[:5])}")
    unknown = [name for name, digest in digests(folders[0].environment).items() if digest is None]
    return [f"{', '.join(unknown)}: cannot be compared."] if unknown else []


def _refuse_missing(folders: Sequence[Folder], lacking: Sequence[Key]) -> None:
    """Refuse to go on without something, with the commands that run it."""
    if not lacking:
        return
    (label, seed), more = lacking[0], f" and {len(lacking) - 1} more" if len(lacking) > 1 else ""
    folder = max(folders, key=lambda folder: folder.part.of)
    parts = {RunPart(k, folder.part.of) for k in range(1, folder.part.of + 1)}
    ways = [
        f"{part} is missing: undrift run {folder.file('spec.toml')} --part {part.number}/{part.of} "
        f"--out {folder.path.parent}"
        for part in sorted(parts - {folder.part for folder in folders})
    ]
    remedy = "; ".join(ways) or "Run every method with every seed, or gather fewer runs"
    raise BadFolder(f"{label} with seed {seed}{more}: in none of {_paths(folders)}. {remedy}")


def _begin(into: Folder, document: Values, folders: Sequence[Folder]) -> list[str]:
    """Write what the run is made from; a remark on places that differ."""
    every, sources = [folder.environment for folder in folders], _sources(folders[0])
    about = every[0] | {"code": reduce(or_, [one.get("code", {}) for one in every])}
    about.pop(PART, None)
    if isinstance(about.get("data"), dict):
        data = reduce(or_, [one["data"] for one in every])
        about["data"] = {str(seed): data[str(seed)] for seed in document["seed"]}
    there = {key: dict.fromkeys(str(one.get(key)) for one in every) for key in about}
    apart = {k: ", ".join(v) for k, v in there.items() if len(v) > 1 and k not in NO_PLACE}
    tables = {key: value for key, value in document.items() if key != "name"}
    # As the run would have it if it were begun from spec.toml: with more rounds it goes on.
    identity = identity_of(tables if folders[0].from_python else document, sources)
    recipe = Script(document["name"], tables, sources)
    into.start(recipe, about | apart | {SPECS: [identity]}, folders[0].partition)
    told = "; ".join(f"{key} is {text}" for key, text in apart.items())
    return [f"Not all was run in one place: {told}."] if told else []


def _take(
    into: Folder,
    folder: Folder,
    outcome: Outcome,
    numbers: Mapping[tuple[Folder, str], int],
    remarks: list[str],
) -> Outcome:
    """Copy the models and the last state of a method, under its number here."""
    from undrift.engines.checkpoint import BadCheckpoint, renamed

    label, seed = outcome.key
    before, number = numbers[folder, label], numbers[into, label]
    files, stem = dict[str, str](), models.stem(number, label, seed)
    for which, file in outcome.files.items():
        # Whatever the outcome in somebody else's folder says, only models are taken.
        source = folder.file(MODELS) / Path(file).name
        files[which] = f"{MODELS}/{stem}-{source.name.rpartition('-')[2]}"
        made(into.file(MODELS))
        shutil.copyfile(source, into.file(files[which]))
    for state in folder.file(CHECKPOINTS).glob(f"{checkpoint(before, seed)}-*.safetensors"):
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
