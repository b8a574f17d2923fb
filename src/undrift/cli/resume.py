"""``resume``: continue a run that was interrupted."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Mapping, Sequence
from pathlib import Path

from undrift.cli.folders import missing, place
from undrift.cli.launch import together
from undrift.cli.output import refuse, say
from undrift.cli.parser import RUN, Parser
from undrift.cli.run import (
    add_engine,
    add_options,
    again,
    executes,
    loggable,
    perform,
    placed,
    refusing,
    report,
)
from undrift.records.folder import BadFolder, Folder
from undrift.spec.reader import load


def add(parser: Parser) -> None:
    parser.description = (
        "Continue a run that was interrupted, was killed or ran out of disk space, from its last "
        "checkpoints. The result is the same as if it had never stopped. A run with code of "
        'somebody\'s own (file = "mine.py") has that file in its folder, and executes it only with '
        "--trust."
    )
    parser.add_argument("run", metavar="RUN", help=RUN)
    parser.flag("--trust", help="execute the Python files in the folder")
    add_engine(parser)
    add_options(parser)
    parser.set_defaults(check=False)


def main(args: Namespace) -> int:
    with refusing():
        loggable(args.logs)
        if wrong := missing(args.run):
            refuse([wrong])
        folder = Folder.of_run(place(args.run))
        if folder.complete:
            folder.tidy()
            unlogged = ", so nothing was logged" if args.logs else ""
            say(f"{folder.path} is finished{unlogged}.")
            return report(folder, args.json)
        if folder.from_python:
            refuse([folder.from_python])
        told = executes if args.trust else distrust
        spec = load(
            folder.file("spec.toml"),
            placed(args),
            lambda files: told(folder.path, files),
        )
        if folder.state(spec) == "other":
            if args.engine:
                refuse([f"--engine {args.engine}: {'; '.join(folder.differences(spec).values())}"])
            raise BadFolder(
                f"{folder.file('spec.toml')} is from another version of undrift: "
                "run the spec it came from"
            )
        with together(spec, args) as code:
            return perform(spec, folder, False, args) if code is None else code


def distrust(place: Path, files: Mapping[str, Sequence[str]]) -> None:
    """Refuse the code that a folder brings."""
    named = ", ".join(f"{place / file} ({', '.join(labels)})" for file, labels in files.items())
    refuse(
        [
            f"{named}: Python code in the folder, which would be executed. "
            f"If you trust it: {again(place, files)}"
        ]
    )
