"""What the folder of a run may become: that of a run with more methods, seeds or rounds."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from undrift.records.journal import CHECKPOINTS, Journal
from undrift.records.outcome import Outcome
from undrift.spec.schema import Table

GROWING: Mapping[str, Sequence[object]] = {"method": (), "seeds": (0,)}
"""What may get more entries, and what it is if it is left out."""
MORE_ROUNDS = (
    "A run has no fewer rounds than it had, and more only where the states that it ended with were "
    "kept: those of earlier versions and those above 64 MB were not. "
)
"""What is said of a folder that holds the same run with other rounds."""


def is_part(before: Table, now: Table) -> bool:
    """Whether a document has all methods, seeds and rounds of another one, and else the same.

    With more rounds, the methods that are there come first and in their order.
    """
    apart = [_without(one, (*GROWING, "rounds")) for one in (before, now)]
    if apart[0] != apart[1]:
        return False
    if _longer(before, now):
        there = before["method"]
        if before["rounds"] > now["rounds"] or now["method"][: len(there)] != there:
            return False
    return all(
        entry in now.get(key, usual)
        for key, usual in GROWING.items()
        for entry in before.get(key, usual)
    )


def going_on(journal: Journal, before: Table, now: Table) -> list[Outcome]:
    """Those that ended with their last round, and have more now."""
    if not _longer(before, now):
        return []
    bound = {entry["label"] for entry in before["method"] if "rounds" in entry}
    ended = [one for one in journal.outcomes() if one.status == "done"]
    return [one for one in ended if one.label not in bound]


def can_go_on(journal: Journal, before: Table, now: Table) -> bool:
    """Whether all of them have left the states that more rounds begin from."""
    going = going_on(journal, before, now)
    places = {entry["label"]: k for k, entry in enumerate(before["method"])} if going else {}
    there = last_rounds(journal.file(CHECKPOINTS).glob("*.safetensors"))
    return all(
        one.same_as is not None or checkpoint(places[one.label], one.seed) in there for one in going
    )


def checkpoint(k: int, seed: int) -> str:
    """What the names of the checkpoints of the k-th method with one seed begin with."""
    return f"{k}-{seed}"


def last_rounds(files: Iterable[Path]) -> dict[str, int]:
    """The last round that there is a checkpoint of, by what its name begins with."""
    found = dict[str, int]()
    for file in files:
        name, _, round = file.stem.rpartition("-")
        if round.isdecimal():
            found[name] = max(found.get(name, 0), int(round))
    return found


def _longer(before: Table, now: Table) -> bool:
    """Whether the number of rounds is another one."""
    return bool(before.get("rounds") != now.get("rounds"))


def _without(document: Table, keys: Sequence[str]) -> Table:
    return {key: value for key, value in document.items() if key not in keys}
