"""The command line. This page is all of it; each verb's work is in a module of its own, loaded when it is used.

argparse, because it is there: typer needs pydantic to read one argument, and the two take longer to load than all
that ``list`` or a refused spec has to do.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

EPILOG = """\
Results go to standard output, talk and progress to standard error.
Exit codes: 0 all is well; 1 every method failed or diverged; 2 bad input, nothing was run; 130 interrupted."""


def main(argv: Sequence[str] | None = None) -> int:
    """The entry point of ``undrift``; gives the exit code."""
    words = list(sys.argv[1:] if argv is None else argv)
    try:
        parser = commands()
        if words and not words[0].startswith("-"):
            nearest(words[0])
        asked = parser.parse_args(words)
        if not hasattr(asked, "work"):
            parser.print_help()
            return 2
        return asked.work(asked)
    except KeyboardInterrupt:
        print("Interrupted.", file=sys.stderr)
        return 130
    except BrokenPipeError:  # the reader has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0


def commands() -> Parser:
    """Every verb and its options."""
    from undrift import __version__

    parser = Parser("undrift", "Federated optimisation without client drift. Start with: undrift demo")
    parser.add_argument("--version", action="version", version=f"undrift {__version__}")
    verbs = parser.add_subparsers(metavar="COMMAND", parser_class=Parser)

    verb = verbs.add_parser("demo", description=DEMO, help="see client drift, and methods without it, in seconds")
    verb.add_argument("--out", type=Path, default=Path("demo"), metavar="FOLDER", help="default: demo")
    verb.set_defaults(work=demo_verb)

    verb = verbs.add_parser("run", description=RUN, help="run every method of a spec with every seed")
    verb.add_argument("spec", metavar="SPEC", help="TOML file that says what to run")
    verb.add_argument("-s", "--set", dest="changes", action="append", default=[], metavar="KEY=VALUE", help=SET)
    verb.add_argument("--out", type=Path, default=Path("runs"), metavar="FOLDER", help="root of run folders: runs")
    verb.add_argument("--overwrite", action="store_true", help="replace an earlier run of the same name")
    json_option(verb)
    verb.set_defaults(work=run_verb)

    verb = verbs.add_parser("list", description=LIST, help="list the methods, or the named problems")
    verb.add_argument("kind", choices=("methods", "problems"), help="methods or problems", metavar="methods|problems")
    json_option(verb)
    verb.set_defaults(work=list_verb)

    verb = verbs.add_parser("show", description=SHOW, help="show a method: update, parameters, costs, source")
    verb.add_argument("method", metavar="METHOD", help="a name from: undrift list methods")
    json_option(verb)
    verb.set_defaults(work=show_verb)

    verb = verbs.add_parser("compare", description=COMPARE, help="compare recorded runs")
    verb.add_argument("runs", nargs="+", metavar="RUN", help="folder of a run, or its name in runs/")
    verb.add_argument("--target", type=positive, metavar="GAP", help="default: the specs', else 1e-6 of the first gap")
    verb.add_argument("--plot", type=Path, metavar="FILE", help="also draw the curves (.png, .pdf or .svg)")
    json_option(verb)
    verb.set_defaults(work=compare_verb)
    return parser


DEMO = """\
FedAvg stalls at its bias; the corrected methods reach a gap of 1e-10, on real data and on a quadratic.
Takes seconds and downloads nothing. The picture, the specs and the recorded runs go to a folder."""
RUN = """\
Run every method of a spec with every seed. The results go to a folder of the spec's name: spec.toml,
environment.json, metrics.jsonl, metrics.parquet, summary.json, log.txt and gap.png.
Ctrl-C ends the run after the current round and keeps what was measured; twice stops at once."""
SET = "change the spec: rounds=50, problem.clients=20, or method.lr=0.05 for every method with an lr"
LIST = "List the methods with what they cost, or the named problems with their parameters."
SHOW = "Show a method: its update, hyper-parameters, costs, assumptions and source."
COMPARE = "What each method of some runs needed to reach a target, as means over seeds."


def demo_verb(asked: argparse.Namespace) -> int:
    from undrift.cli.demo import demo

    return demo(asked.out)


def run_verb(asked: argparse.Namespace) -> int:
    from undrift.cli.run import run

    return run(asked.spec, asked.changes, asked.out, asked.overwrite, asked.json)


def list_verb(asked: argparse.Namespace) -> int:
    from undrift.cli import listing

    return listing.problems(asked.json) if asked.kind == "problems" else listing.methods(asked.json)


def show_verb(asked: argparse.Namespace) -> int:
    from undrift.cli.listing import show

    return show(asked.method, asked.json)


def compare_verb(asked: argparse.Namespace) -> int:
    from undrift.cli.compare import compare

    return compare(asked.runs, asked.target, asked.plot, asked.json)


class Parser(argparse.ArgumentParser):
    """One look for every verb, and complaints that cannot command the terminal."""

    def __init__(self, prog: str, description: str, **kwargs: object):
        kwargs |= {"prog": prog, "description": description, "epilog": EPILOG, "allow_abbrev": False}
        super().__init__(formatter_class=argparse.RawDescriptionHelpFormatter, **kwargs)  # type: ignore[arg-type]

    def error(self, message: str) -> NoReturn:
        from undrift.cli.talk import refuse

        refuse([message], f"See: {self.prog} --help")


def json_option(verb: argparse.ArgumentParser) -> None:
    verb.add_argument("--json", action="store_true", help="print JSON instead of a table")


def nearest(word: str) -> None:
    """Refuse a verb that does not exist, with the nearest one that does."""
    verbs = ("demo", "run", "list", "show", "compare")
    if word not in verbs:
        from undrift.cli.talk import refuse
        from undrift.core.params import unknown

        refuse([unknown("command", word, verbs)])


def positive(text: str) -> float:
    value = float(text)
    if not 0 < value < float("inf"):
        raise ValueError
    return value
