"""``data``: image sets, and whether they are sound."""

from __future__ import annotations

import dataclasses
import os
import sys
from argparse import Namespace
from pathlib import Path

from undrift.cli.output import FAILED, OK, refuse, result_as, say
from undrift.cli.parser import Parser
from undrift.core.params import unknown
from undrift.data.cards import CARDS
from undrift.data.files import FOLDER, BadData, data_folder
from undrift.report.numbers import size

CLEAR = "\r\x1b[2K"


def add(parser: Parser) -> None:
    parser.description = (
        "fetch: download an image set from its official place; a file that is there and right is "
        "kept\n"
        "info: what the set is, and where it comes from\n"
        "verify: read every image and compare with what is known of the set\n\n"
        "A set of your own is a folder FOLDER/NAME with train/CLASS/ and test/CLASS/."
    )
    parser.add_argument(
        "what", choices=tuple(ACTIONS), metavar="|".join(ACTIONS), help="what to do"
    )
    parser.add_argument(
        "name",
        nargs="?",
        metavar="NAME",
        help="an image set: digits, mnist, cifar10, ..., or your own",
    )
    parser.file("--folder", metavar="FOLDER", help="where the data are (default: $UNDRIFT_DATA)")
    parser.json()


def main(args: Namespace) -> int:
    try:
        ACTIONS[args.what](args.name, args.folder, args.json)
    except BadData as error:
        say(str(error))
        return FAILED
    except ValueError as error:
        refuse([error])
    return OK


def info(name: str | None, folder: Path | None, as_json: bool) -> None:
    """What is known of a set, or of all."""
    if name and name not in CARDS:
        raise ValueError(f"{unknown('image set', name, CARDS)}; of your own: undrift data verify")
    cards = [CARDS[name]] if name else list(CARDS.values())
    document = [dataclasses.asdict(found) for found in cards]
    result_as(as_json, document, "\n".join(map(str, cards)))


def fetch(name: str | None, folder: Path | None, as_json: bool) -> None:
    """Download a set from its official place."""
    from undrift.data import fetch as official

    name = needed(name, folder)
    terminal = sys.stderr.isatty()
    found = official.fetch(name, folder, progress=line if terminal else None)
    paths = [str(path) for path in found]
    if terminal:
        print(CLEAR, end="", file=sys.stderr, flush=True)
    result_as(as_json, paths, "\n".join(paths))
    where = f" --folder {folder}" if folder else ""
    say(f"{name} is there. To check every image: undrift data verify {name}{where}")


def verify(name: str | None, folder: Path | None, as_json: bool) -> None:
    """Read every image and compare with what is known."""
    from undrift.data import images as sets

    name = needed(name, folder)
    found = sets.verify(name, folder)
    train, test = sum(found.train.values()), sum(found.test.values())
    shape, note = " x ".join(map(str, found.shape)), f" ({found.note})" if found.note else ""
    images = f"{train} + {test} images of {shape}, {len(found.train)} classes{note}"
    files = [f"  {file}  sha256 {digest}" for file, digest in found.hashes.items()]
    text = "\n".join([f"{name} is sound: {images}", *files])
    result_as(as_json, dataclasses.asdict(found), text)


ACTIONS = {"fetch": fetch, "info": info, "verify": verify}


def needed(name: str | None, folder: Path | None) -> str:
    """The name, if a set of that name can be looked for."""
    if name is None:
        raise ValueError(f"name a set: one of {', '.join(CARDS)}")
    where = folder or os.environ.get(FOLDER)
    if name not in CARDS and not (where and (data_folder(folder) / name / "train").is_dir()):
        place = f"{where or 'the folder of the data'}/{name}/train"
        raise ValueError(f"{unknown('image set', name, CARDS)}; your own is {place}")
    if name != "digits" and not where:
        raise ValueError(f"no data folder is named: add --folder FOLDER, or set {FOLDER} to one")
    return name


def line(file: str, done: int, total: int | None) -> None:
    """Show how far a download is, in a line of the terminal that is written again and again."""
    part = f"{100 * done // total:3d} % of {size(total)}" if total else size(done)
    print(f"{CLEAR}{file}  {part}", end="", file=sys.stderr, flush=True)
