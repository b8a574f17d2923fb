"""``advise``: which method, for the problem of a spec."""

from __future__ import annotations

from argparse import Namespace

from undrift.cli.output import result_as, say
from undrift.cli.parser import Parser, natural
from undrift.cli.run import add_changes, read_spec


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
    parser.add_argument(
        "--all",
        action="store_true",
        help="give every method the whole budget, after a first heat with a quarter",
    )
    parser.add_argument(
        "--exchanges", type=natural, metavar="N", help="the most exchanges of messages in a round"
    )
    parser.add_argument(
        "--by",
        choices=("vectors", "rounds"),
        default="vectors",
        help="what is scarce: vectors that are sent (default), or rounds",
    )
    add_changes(parser)
    parser.json()


def main(args: Namespace) -> None:
    from undrift.records.folder import made
    from undrift.tuning.advise import SHARES, advise

    spec = read_spec(args, tune=True)
    folder = args.out / f"{spec.name}-advice"
    made(folder)
    heats = (1 / 4, 1.0) if args.all else SHARES
    found = advise(spec, args.stateless, args.exchanges, args.by, say, heats, args.all)
    found.write(folder)
    result_as(args.json, found.document(), found.table().text())
    first = next(iter(found.entrants))
    say(f"\nBest here: {first}. Table and picture in {folder}; run the best of them:")
    say(f"undrift run {folder / 'advised.toml'}")
