"""Options of ``demo``, ``run``, ``resume`` and ``export``."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Callable
from dataclasses import dataclass

from undrift.cli.parser import RUN, Parser, seconds


@dataclass(frozen=True)
class Verb:
    add: Callable[[Parser], None]
    main: Callable[[Namespace], int]


def add_demo(parser: Parser) -> None:
    parser.description = (
        "FedAvg stalls at its bias; the corrected methods reach a gap of 1e-10, on real data and "
        "on a quadratic. Takes seconds and downloads nothing. The picture, the specs and the "
        "recorded runs go to a folder."
    )
    parser.folder("--out", default="demo", help="where everything goes")


def main_demo(args: Namespace) -> int:
    from undrift.cli.demo import demo

    return demo(args.out)


def add_run(parser: Parser) -> None:
    parser.description = (
        "Run every method of a spec with every seed. The results go to a folder of the spec's "
        "name: spec.toml, environment.json, metrics.jsonl, metrics.parquet, summary.json, models, "
        "log.txt and gap.png or accuracy.png. Ctrl-C ends the run after the current round; the "
        "same command, or undrift resume, continues from there. Ctrl-C twice stops at once. A "
        'method with a file (file = "mine.py") is Python code, which is executed.'
    )
    parser.add_argument("spec", metavar="SPEC", help="TOML file that says what to run")
    text = (
        "change the spec: rounds=50, problem.clients=20, cohort.size=5, or method.lr=0.05 for "
        "every method with an lr"
    )
    parser.add_argument(
        "-s", "--set", dest="changes", action="append", default=[], metavar="KEY=VALUE", help=text
    )
    parser.folder("--out", default="runs", help="where run folders go")
    parser.flag("--overwrite", help="replace an earlier run of the same name")
    text = "run two rounds of each method, write nothing, and estimate what all of it takes"
    parser.flag("--check", help=text)
    run_options(parser)


def main_run(args: Namespace) -> int:
    from undrift.cli.run import run

    how = (args.checkpoint, args.store, args.json, args.logs)
    return run(args.spec, args.changes, args.out, args.overwrite, args.check, *how)


def add_resume(parser: Parser) -> None:
    parser.description = (
        "Continue a run that was interrupted, was killed or ran out of disk space, from its last "
        "checkpoints. The result is the same as if it had never stopped. A run with a method of "
        'somebody\'s own (file = "mine.py") has that file in its folder, and executes it only with '
        "--trust."
    )
    parser.add_argument("run", metavar="RUN", help=RUN)
    parser.flag("--trust", help="execute the Python files in the folder")
    run_options(parser)


def main_resume(args: Namespace) -> int:
    from undrift.cli.run import resume

    return resume(args.run, args.checkpoint, args.store, args.json, args.logs, args.trust)


def run_options(parser: Parser) -> None:
    text = "time between checkpoints (default: 10)"
    parser.add_argument("--checkpoint", type=seconds, metavar="SECONDS", help=text)
    places = ("auto", "device", "host", "file")
    text = (
        "where client states are kept: device, host (main memory, beside a GPU), file, or auto: "
        "the first with room"
    )
    parser.add_argument("--store", choices=places, default="auto", metavar="PLACE", help=text)
    text = "the same bits whenever the run is repeated on one device (on a CPU always so)"
    parser.flag("--deterministic", help=text)
    names = ("tensorboard", "mlflow")
    parser.add_argument(
        "--log",
        dest="logs",
        action="append",
        choices=names,
        default=[],
        metavar="LOGGER",
        help="also log every row to tensorboard (in RUN/tensorboard) or mlflow; may be repeated",
    )
    parser.json()


def add_export(parser: Parser) -> None:
    parser.description = (
        "Copy the model that a method of a run ended with, or its best (smallest gap, else highest "
        "accuracy, else smallest loss), to a safetensors file. Of networks it is the module's "
        'state_dict, of other problems one vector "x".'
    )
    parser.add_argument("run", metavar="RUN", help=RUN)
    parser.add_argument("method", metavar="METHOD", help="its label in the spec")
    parser.file("-o", "--out", required=True, help="where to: a .safetensors file")
    parser.add_argument("--seed", type=int, metavar="S", help="needed where there are several")
    parser.flag("--best", help="the best model that was measured, not the last")
    parser.flag("--overwrite", help="replace FILE if it exists")
    parser.json()


def main_export(args: Namespace) -> int:
    from undrift.cli.export import export

    how = (args.seed, args.best, args.out, args.overwrite, args.json)
    return export(args.run, args.method, *how)


def verb(name: str) -> Verb:
    return {
        "demo": Verb(add_demo, main_demo),
        "run": Verb(add_run, main_run),
        "resume": Verb(add_resume, main_resume),
        "export": Verb(add_export, main_export),
    }[name]
