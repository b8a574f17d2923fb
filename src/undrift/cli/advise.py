"""``advise``: which method, for the problem of a spec."""

from __future__ import annotations

from argparse import Namespace
from functools import partial
from pathlib import Path

from undrift.cli.output import result, result_json, say
from undrift.cli.parser import Parser, natural
from undrift.cli.run import add_changes, executes


def add(parser: Parser) -> None:
    parser.description = (
        "Race all methods that can run on the problem of a spec, each with its step tuned: first "
        "with an eighth of the vectors that FedAvg sends in the spec's rounds, then half of them "
        "with a quarter, with a half and with all. Methods that cannot run are told with the "
        "reason. The spec's own methods do not matter; its problem, steps, cohort, batch, rounds "
        "and target do. The folder NAME-advice has the spec to run, the table and a picture of "
        "vectors against gradients."
    )
    parser.add_argument("spec", metavar="SPEC", help="the spec, a TOML file")
    parser.add_argument("--stateless", action="store_true", help="clients keep nothing")
    text = "give every method the whole budget, after a first heat with a quarter"
    parser.add_argument("--all", action="store_true", help=text)
    text = "the most exchanges of messages in a round"
    parser.add_argument("--exchanges", type=natural, metavar="N", help=text)
    text = "what is scarce: vectors that are sent (default), or rounds"
    parser.add_argument("--by", choices=("vectors", "rounds"), default="vectors", help=text)
    add_changes(parser)
    parser.json()


def main(args: Namespace) -> None:
    from undrift.records.folder import made
    from undrift.spec.reader import load
    from undrift.tuning.advise import SHARES, advise

    code = partial(executes, Path(args.spec).parent)
    spec = load(args.spec, args.changes, code, tune=True)
    folder = args.out / f"{spec.name}-advice"
    made(folder)
    heats = (1 / 4, 1.0) if args.all else SHARES
    found = advise(spec, args.stateless, args.exchanges, args.by, say, heats, args.all)
    found.write(folder)
    if args.json:
        result_json(found.document())
    else:
        result(found.table().text())
    first = next(iter(found.entrants))
    say(f"\nBest here: {first}. Table and picture in {folder}; run the best of them:")
    say(f"undrift run {folder / 'advised.toml'}")
