"""``data``: image sets, and whether they are sound."""

from __future__ import annotations

import dataclasses
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from pathlib import Path
from typing import Any

from undrift.cli.talk import FAILED, OK, refuse, result, result_json, say
from undrift.core.params import unknown
from undrift.data.cards import CARDS, Card
from undrift.data.files import FOLDER, BadData, data_folder
from undrift.report.text import size

Told = Callable[[str, int, int | None], None]


def verb(work: Callable[..., None]) -> Callable[..., int]:
    """``work`` with an exit code, and one sentence for whatever is wrong."""

    @wraps(work)
    def told(*asked: Any) -> int:
        try:
            work(*asked)
            return OK
        except BadData as error:
            say(str(error))
        except ValueError as error:
            refuse([error])
        except OSError as error:
            say(f"{error.filename}: {error.strerror or error}")
        return FAILED

    return told


@verb
def info(name: str | None, folder: Path | None, as_json: bool) -> None:
    """What is known of a set, or of all."""
    cards = [known(name, folder)] if name else list(CARDS.values())
    if as_json:
        result_json([dataclasses.asdict(found) for found in cards])
    else:
        result("\n".join(map(str, cards)))


@verb
def fetch(name: str | None, folder: Path | None, as_json: bool) -> None:
    """Download a set from its official place."""
    from undrift.data import fetch as official

    name = needed(name, folder)
    with progress() as told:
        paths = [str(path) for path in official.fetch(name, folder, progress=told)]
    if as_json:
        result_json(paths)
    else:
        result("\n".join(paths))
    say(
        f"{name} is there. Check every image: undrift data verify {name}"
        + f" --folder {folder}" * bool(folder)
    )


@verb
def verify(name: str | None, folder: Path | None, as_json: bool) -> None:
    """Read every image and compare with what is known."""
    from undrift.data import images

    name = needed(name, folder)
    found = images.verify(name, folder)
    if as_json:
        result_json(dataclasses.asdict(found))
        return
    train, test = sum(found.train.values()), sum(found.test.values())
    shape, note = " x ".join(map(str, found.shape)), f" ({found.note})" if found.note else ""
    result(f"{name} is sound: {train} + {test} images of {shape}, {len(found.train)} classes{note}")
    for file, digest in found.hashes.items():
        result(f"  {file}  sha256 {digest}")


def known(name: str, folder: Path | None) -> Card:
    """A set's card; that of a set of one's own is made from its images."""
    if name in CARDS:
        return CARDS[name]
    name = needed(name, folder)
    from undrift.data import images

    path, _ = images.find(name, folder)
    found = images.verify(name, folder)
    channels, height, width = found.shape
    return Card(
        name=name,
        title=f"your own, in {path}",
        shape=(channels, height, width),
        train=tuple(found.train.values()),
        test=tuple(found.test.values()),
    )


def needed(name: str | None, folder: Path | None) -> str:
    """The name, if a set of that name can be looked for."""
    if name is None:
        raise ValueError(f"name a set: one of {', '.join(CARDS)}")
    somewhere = folder is not None or bool(os.environ.get(FOLDER))
    if name not in CARDS:
        place = data_folder(folder) / name / "train" if somewhere else None
        if place is None or not place.is_dir():
            raise ValueError(
                unknown("image set", name, CARDS) + f"; looked for {place}" * bool(place)
            )
    if name != "digits" and not somewhere:
        raise ValueError(f"no data folder is named: add --folder FOLDER, or set {FOLDER} to one")
    return name


@contextmanager
def progress() -> Iterator[Told | None]:
    """A line that tells how far a download is, where there is a terminal."""
    if not sys.stderr.isatty():
        yield None
        return

    def told(file: str, done: int, total: int | None) -> None:
        part = f"{100 * done // total:3d} % of {size(total)}" if total else size(done)
        print(f"\r\x1b[2K{file}  {part}", end="", file=sys.stderr, flush=True)

    try:
        yield told
    finally:
        print("\r\x1b[2K", end="", file=sys.stderr, flush=True)
