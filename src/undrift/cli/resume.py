"""``resume``: continue a run that was interrupted."""

from __future__ import annotations

from argparse import Namespace
from functools import partial

from undrift.cli.folders import places
from undrift.cli.output import refuse
from undrift.cli.parser import RUN, Parser
from undrift.cli.run import add_options, executes, finished, perform, placed, together
from undrift.records.folder import Folder
from undrift.spec.reader import load
from undrift.spec.user_files import distrust


def add(parser: Parser) -> None:
    parser.description = (
        "Continue a run that was interrupted, was killed or ran out of disk space, from its last "
        "checkpoints. The result is the same as if it had never stopped. A run with code of "
        'somebody\'s own (file = "mine.py") has that file in its folder, and executes it only with '
        "--trust."
    )
    parser.add_argument("run", metavar="RUN", help=RUN)
    parser.add_argument(
        "--trust", action="store_true", help="execute the Python files in the folder"
    )
    add_options(parser, here=True)
    parser.set_defaults(check=False)


def main(args: Namespace) -> int:
    (path,) = places(args.run)
    folder = Folder.of_run(path)
    if folder.complete:
        return finished(folder, args)
    if folder.from_python:
        refuse([folder.from_python])
    trusting = f"undrift resume {folder.path} --trust"
    told = partial(executes, folder.path) if args.trust else distrust(trusting)
    spec = load(folder.file("spec.toml"), placed(args), told)
    args.part = folder.part
    if folder.state(spec, args.part) == "other":
        folder.refuse_changes(spec, args.part)
    with together(spec, args) as code:
        return perform(spec, folder, False, args) if code is None else code
