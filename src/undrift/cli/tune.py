"""``tune``: the best hyper-parameters of every method of a spec, each by the same effort."""

from __future__ import annotations

from argparse import Namespace
from functools import partial

from undrift.cli.output import result_as, say
from undrift.cli.parser import Parser, natural
from undrift.cli.run import add_changes, read_spec


def add(parser: Parser) -> None:
    parser.description = (
        "Find the best hyper-parameters of every method of a spec. Lists and tables in a method "
        "say what is tried: lr = [0.05, 0.1], lr = { log = [1e-3, 1], n = 8 }; without any, lr is "
        "tried from an eighth to eight times the given one. Grids are extended where the best is "
        "at their edge. [tune] in the spec says how: rounds, seed, goal, target, gradients ...\n"
        "The folder NAME-tuning has the spec with the values found, a table, response curves, and "
        "all that was tried; the same command continues one that was interrupted."
    )
    parser.add_argument("spec", metavar="SPEC", help="the spec, a TOML file")
    parser.add_argument(
        "--jobs",
        type=natural,
        default=1,
        metavar="N",
        help="processes that take a method each (default: 1)",
    )
    parser.add_argument("--run", action="store_true", help="then run the tuned spec")
    add_changes(parser)
    parser.add_argument(
        "--overwrite", action="store_true", help="replace an earlier search of the same name"
    )
    parser.json()


def main(args: Namespace) -> int:
    from undrift.cli import answer
    from undrift.tuning.tune import begin, told, tune_spec

    spec = read_spec(args, tune=True)
    folder = args.out / f"{spec.name}-tuning"
    begin(spec, folder, args.overwrite)

    found = tune_spec(spec, folder, partial(told, say), args.jobs)
    tuned = folder / "tuned.toml"
    document = {label: one.document() for label, one in found.items()}
    result_as(args.json, document, str(found))
    say(f"\nTuned spec, table and curves in {folder}. Run it: undrift run {tuned}")
    if not args.run:
        return 0
    again = ["--overwrite"] if args.overwrite else []
    return answer(["run", str(tuned), "--out", str(args.out), *again])
