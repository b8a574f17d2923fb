"""The command line. This page is all of it; each verb's work is in a module of its own, loaded when
it is used.
"""

from __future__ import annotations

import argparse
import io
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NoReturn

from undrift.cli.stop import Interrupt, code, tell
from undrift.report.text import PAGE, columns, prose

EPILOG = """\
Results go to standard output, messages and progress to standard error. \
Tables are as wide as the terminal, or as COLUMNS says; in a pipe or a file every row is one line.
Exit codes: 0 success; 1 failure (of a run: every method failed); 2 bad input, nothing was run; 130 interrupted by \
Ctrl-C, 143 by SIGTERM, 129 by SIGHUP, which do what Ctrl-C does. UNDRIFT_DEBUG=1 shows where an unexpected error \
comes from."""
DEBUG = "UNDRIFT_DEBUG"
"""The environment variable that has tracebacks shown."""


def main(argv: Sequence[str] | None = None) -> int:
    """The entry point of ``undrift``; gives the exit code."""
    words = list(sys.argv[1:] if argv is None else argv)
    with Interrupt() as wish:
        try:
            try:
                return answer(words)
            finally:
                wish.settle()
        except KeyboardInterrupt as stop:
            tell("Interrupted.")
            return code(*stop.args[:1])
        except BrokenPipeError:  # the reader has seen enough
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            return 0
        except Exception as error:
            if os.environ.get(DEBUG):
                raise
            return unexpected(error)


def answer(words: list[str]) -> int:
    """Do what the command line asks."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # not every terminal or file can hold every letter
            stream.reconfigure(errors="backslashreplace")
    parser = commands()
    if words and not words[0].startswith("-"):
        nearest(words[0])
    asked = parser.parse_args(words, argparse.Namespace(words=words))
    if not hasattr(asked, "work"):
        parser.print_help()
        return 2
    if getattr(asked, "deterministic", False):
        from undrift.runs.environment import deterministic

        deterministic()
    return asked.work(asked)


def unexpected(error: Exception) -> int:
    """One line about what nobody foresaw."""
    from undrift.cli.talk import FAILED, say

    trace = error.__traceback__
    while trace and trace.tb_next:
        trace = trace.tb_next
    where = f" at {trace.tb_frame.f_code.co_filename}:{trace.tb_lineno}" if trace else ""
    words = " ".join(str(error).split())
    say(
        f"Unexpected {type(error).__name__}{where}: {words[:300]}. Please report it, with what {DEBUG}=1 shows."
    )
    return FAILED


def commands() -> Parser:
    """Every verb and its options."""
    from undrift import __version__

    parser = Parser(
        "undrift", "Federated optimisation without client drift. Start with: undrift demo"
    )
    parser.add_argument("--version", action="version", version=f"undrift {__version__}")
    verbs = parser.add_subparsers(metavar="COMMAND", parser_class=Parser)

    verb = verbs.add_parser(
        "demo", description=DEMO, help="see client drift, and methods without it, in seconds"
    )
    verb.add_argument(
        "--out",
        type=Path,
        default=Path("demo"),
        metavar="FOLDER",
        help="where everything goes (default: demo)",
    )
    verb.set_defaults(work=demo_verb)

    verb = verbs.add_parser(
        "run", description=RUN, help="run every method of a spec with every seed"
    )
    verb.add_argument("spec", metavar="SPEC", help="TOML file that says what to run")
    verb.add_argument(
        "-s", "--set", dest="changes", action="append", default=[], metavar="KEY=VALUE", help=SET
    )
    verb.add_argument(
        "--out",
        type=Path,
        default=Path("runs"),
        metavar="FOLDER",
        help="where run folders go (default: runs)",
    )
    verb.add_argument(
        "--overwrite", action="store_true", help="replace an earlier run of the same name"
    )
    verb.add_argument(
        "--check",
        action="store_true",
        help="run two rounds of each method, write nothing, say what all would take",
    )
    pause_option(verb)
    store_option(verb)
    deterministic_option(verb)
    log_option(verb)
    json_option(verb)
    verb.set_defaults(work=run_verb)

    verb = verbs.add_parser(
        "resume", description=RESUME, help="continue a run that was interrupted"
    )
    verb.add_argument("run", metavar="RUN", help="folder of a run, or its name in runs/")
    verb.add_argument(
        "--trust", action="store_true", help="execute the Python files that the folder brings"
    )
    pause_option(verb)
    store_option(verb)
    deterministic_option(verb)
    log_option(verb)
    json_option(verb)
    verb.set_defaults(work=resume_verb)

    verb = verbs.add_parser("compare", description=COMPARE, help="compare recorded runs")
    verb.add_argument(
        "runs", nargs="+", metavar="RUN", help="folder of a run, or its name in runs/"
    )
    verb.add_argument("--target", type=positive, metavar="VALUE", help=TARGET)
    verb.add_argument(
        "--plot", type=Path, metavar="FILE", help="also draw the curves (.png, .pdf or .svg)"
    )
    verb.add_argument("--y", metavar="COLUMN", help=f"what to draw: {', '.join(COLUMNS)}")
    verb.add_argument(
        "--smooth",
        type=natural,
        metavar="ROWS",
        help="draw accuracies as means of that many rows (default: the spec's, else 10)",
    )
    json_option(verb)
    verb.set_defaults(work=compare_verb)

    verb = verbs.add_parser(
        "report", description=REPORT, help="write recorded runs as one HTML file"
    )
    verb.add_argument(
        "runs", nargs="+", metavar="RUN", help="folder of a run, or its name in runs/"
    )
    verb.add_argument(
        "-o",
        "--out",
        type=Path,
        metavar="FILE",
        help="default: RUN/report.html; of several runs, report.html",
    )
    verb.add_argument("--target", type=positive, metavar="VALUE", help=TARGET)
    json_option(verb)
    verb.set_defaults(work=report_verb)

    verb = verbs.add_parser("export", description=EXPORT, help="copy a model of a run to a file")
    verb.add_argument("run", metavar="RUN", help="folder of a run, or its name in runs/")
    verb.add_argument("method", metavar="METHOD", help="its label in the spec")
    verb.add_argument(
        "-o",
        "--out",
        type=Path,
        required=True,
        metavar="FILE",
        help="where to: a .safetensors file",
    )
    verb.add_argument("--seed", type=int, metavar="S", help="needed where there are several")
    verb.add_argument(
        "--best", action="store_true", help="the best model that was measured, not the last"
    )
    verb.add_argument("--overwrite", action="store_true", help="replace FILE if it exists")
    json_option(verb)
    verb.set_defaults(work=export_verb)

    verb = verbs.add_parser(
        "list",
        description=LIST,
        help="list methods, objectives, problems or the settings of a spec",
    )
    verb.add_argument("kind", choices=KINDS, help=", ".join(KINDS), metavar="|".join(KINDS))
    json_option(verb)
    verb.set_defaults(work=list_verb)

    verb = verbs.add_parser(
        "show", description=SHOW, help="show a method or an objective: update, parameters, source"
    )
    verb.add_argument(
        "name", metavar="NAME", help="from: undrift list methods, or: undrift list objectives"
    )
    json_option(verb)
    verb.set_defaults(work=show_verb)

    verb = verbs.add_parser(
        "reproduce", description=REPRODUCE, help="rerun the papers' tables and figures"
    )
    verb.add_argument(
        "items", nargs="*", metavar="ITEM", help="PAPER, PAPER/ITEM, PAPER/ITEM/PANEL or all"
    )
    verb.add_argument("--list", action="store_true", help="list the items and what each would take")
    verb.add_argument(
        "--quick",
        action="store_true",
        help="less of everything: shows that an item runs, judges nothing",
    )
    verb.add_argument(
        "--seeds", type=natural, default=1, metavar="N", help="run seeds 0 to N - 1 (default: 1)"
    )
    verb.add_argument(
        "--device",
        default="cpu",
        metavar="DEVICE",
        help="for networks: cpu, cuda, cuda:0, ... (default: cpu)",
    )
    verb.add_argument(
        "--precision",
        choices=("f32", "tf32", "bf16"),
        help="of matrix products (default: bf16 on a GPU, else f32)",
    )
    verb.add_argument("--rounds", type=natural, metavar="N", help="stop every run after N rounds")
    verb.add_argument("--only", default="", metavar="LABEL,...", help="only these methods")
    verb.add_argument(
        "--minutes",
        type=positive,
        metavar="M",
        help="stop cleanly after M minutes; the same command continues",
    )
    verb.add_argument(
        "--jobs",
        type=natural,
        default=1,
        metavar="N",
        help="processes that share the work (default: 1)",
    )
    verb.add_argument("--worker", type=natural, help=argparse.SUPPRESS)
    verb.add_argument(
        "--out",
        type=Path,
        default=Path("reproductions"),
        metavar="FOLDER",
        help="where runs are kept (default: reproductions)",
    )
    verb.add_argument(
        "--kept", action="store_true", help="run nothing: write pages from the runs that are kept"
    )
    verb.add_argument(
        "--pages", type=Path, metavar="FOLDER", help="where pages go (default: pages in --out)"
    )
    verb.add_argument(
        "--pack",
        type=Path,
        metavar="FILE",
        help="also write the kept runs of the items (or all) to one file",
    )
    verb.add_argument(
        "--unpack", type=Path, metavar="FILE", help="first take in the runs of such a file"
    )
    json_option(verb)
    verb.set_defaults(work=reproduce_verb)

    verb = verbs.add_parser(
        "tables", description=TABLES, help="compute the papers' tables: printed values beside ours"
    )
    verb.add_argument("item", nargs="?", metavar="ITEM", help="default: all of them")
    json_option(verb)
    verb.set_defaults(work=tables_verb)

    verb = verbs.add_parser("new", description=NEW, help="start a method of your own")
    verb.add_argument("kind", choices=("method",), metavar="method", help="what to start: a method")
    verb.add_argument("name", metavar="NAME", help="its name, with a capital letter: Mine")
    out = "where to write it (default: the current folder)"
    verb.add_argument("--out", type=Path, default=Path("."), metavar="FOLDER", help=out)
    verb.set_defaults(work=new_verb)

    verb = verbs.add_parser("check", description=CHECK, help="check the methods of a file")
    verb.add_argument(
        "file", type=Path, metavar="FILE", help="a Python file with your methods; it is run"
    )
    json_option(verb)
    verb.set_defaults(work=check_verb)

    verb = verbs.add_parser("data", description=DATA, help="fetch, describe or verify image sets")
    verb.add_argument(
        "what", choices=("fetch", "info", "verify"), metavar="fetch|info|verify", help="what to do"
    )
    verb.add_argument(
        "name",
        nargs="?",
        metavar="NAME",
        help="an image set: digits, mnist, cifar10, ..., or your own",
    )
    verb.add_argument(
        "--folder", type=Path, metavar="FOLDER", help="where the data are (default: $UNDRIFT_DATA)"
    )
    json_option(verb)
    verb.set_defaults(work=data_verb)
    return parser


VERBS = ("demo", "run", "resume", "compare", "report", "export", "list", "show", "reproduce", "tables", "new", "check",
         "data")  # fmt: skip
COLUMNS = (
    "gap",
    "accuracy",
    "top5",
    "loss",
    "train_accuracy",
    "train_loss",
    "drift",
    "grad_norm",
    "distance",
)
"""What compare draws."""
KINDS = ("methods", "objectives", "problems", "settings")
DEMO = """\
FedAvg stalls at its bias; the corrected methods reach a gap of 1e-10, on real data and on a quadratic. \
Takes seconds and downloads nothing. The picture, the specs and the recorded runs go to a folder."""
RUN = """\
Run every method of a spec with every seed. The results go to a folder of the spec's name: spec.toml, \
environment.json, metrics.jsonl, metrics.parquet, summary.json, models, log.txt and gap.png or accuracy.png. \
Ctrl-C ends the run after the current round; the same command, or undrift resume, continues from there. \
Ctrl-C twice stops at once. A method with a file (file = "mine.py") is Python code, which is executed."""
RESUME = """\
Continue a run that was interrupted, was killed or ran out of disk space, from its last checkpoints. \
The result is the same as if it had never stopped. A run with a method of somebody's own (file = "mine.py") has that \
file in its folder, and executes it only with --trust."""
SET = "change the spec: rounds=50, problem.clients=20, cohort.size=5, or method.lr=0.05 for every method with an lr"
LIST = """\
List the methods with what they cost, the local objectives, the named problems with their parameters, or the \
settings of a spec."""
SHOW = "Show a method (update, hyper-parameters, costs, assumptions, source) or a local objective."
COMPARE = """\
What each method of one or more runs needed to reach a target: means over seeds, with the standard deviation where \
there are several. Runs that are judged by different measures get a table each."""
REPORT = """\
Write recorded runs, finished or not, as one HTML file: curves to explore, tables, who holds what, specs and machines. \
It is about 5 MB, most of it the chart library, and needs no network."""
EXPORT = """\
Copy the model that a method of a run ended with, or its best (smallest gap, else highest accuracy, else smallest \
loss), to a safetensors file. Of networks it is the module's state_dict, of other problems one vector "x"."""
TARGET = "a gap, or for networks an accuracy such as 0.8 (default: the spec's, else 1e-6 of the first gap)"
REPRODUCE = """\
Run what a table or figure of the papers shows, and write a page that compares: their numbers beside ours, what the \
paper leaves open, and a verdict. Every run is kept and none is run twice: items share runs, and an interrupted one is \
continued. Start with: undrift reproduce --list"""
TABLES = "Tables of the papers: the printed values, and those computed from the methods and theory as they are here."
NEW = "Write a file with a small method that works, to be changed into your own."
CHECK = "Run on each method of a file the checks that every method here passes: does it do what it declares?"
DATA = """\
fetch: download an image set from its official place; a file that is there and right is kept
info: what the set is, and where it comes from
verify: read every image and compare with what is known of the set

A set of your own is a folder FOLDER/NAME with train/CLASS/ and test/CLASS/."""


def demo_verb(asked: argparse.Namespace) -> int:
    from undrift.cli.demo import demo

    return demo(asked.out)


def run_verb(asked: argparse.Namespace) -> int:
    from undrift.cli.run import run

    how = (asked.checkpoint, asked.store, asked.json, asked.logs)
    return run(asked.spec, asked.changes, asked.out, asked.overwrite, asked.check, *how)


def resume_verb(asked: argparse.Namespace) -> int:
    from undrift.cli.run import resume

    return resume(asked.run, asked.checkpoint, asked.store, asked.json, asked.logs, asked.trust)


def compare_verb(asked: argparse.Namespace) -> int:
    from undrift.cli.compare import compare

    return compare(asked.runs, asked.target, asked.plot, asked.y, asked.smooth, asked.json)


def report_verb(asked: argparse.Namespace) -> int:
    from undrift.cli.report import report

    return report(asked.runs, asked.out, asked.target, asked.json)


def export_verb(asked: argparse.Namespace) -> int:
    from undrift.cli.export import export

    how = (asked.seed, asked.best, asked.out, asked.overwrite, asked.json)
    return export(asked.run, asked.method, *how)


def list_verb(asked: argparse.Namespace) -> int:
    from undrift.cli import listing

    return getattr(listing, asked.kind)(asked.json)


def show_verb(asked: argparse.Namespace) -> int:
    from undrift.cli.listing import show

    return show(asked.name, asked.json)


def reproduce_verb(asked: argparse.Namespace) -> int:
    from undrift.cli.reproduce import Asked, reproduce
    from undrift.reproduce.perform import Options

    only = [label.strip() for label in asked.only.split(",") if label.strip()]
    options = Options(asked.quick, asked.seeds, asked.device, asked.precision, asked.rounds, only)
    return reproduce(
        Asked(
            asked.words, asked.items, options, asked.out, asked.pages, asked.minutes, asked.jobs, asked.worker,
            asked.pack, asked.unpack, asked.kept, asked.list, asked.json,
        )
    )  # fmt: skip


def tables_verb(asked: argparse.Namespace) -> int:
    from undrift.cli.tables import tables

    return tables(asked.item, asked.json)


def new_verb(asked: argparse.Namespace) -> int:
    from undrift.cli.own import new

    return new(asked.name, asked.out)


def check_verb(asked: argparse.Namespace) -> int:
    from undrift.cli.own import check

    return check(asked.file, asked.json)


def data_verb(asked: argparse.Namespace) -> int:
    from undrift.cli import data

    return getattr(data, asked.what)(asked.name, asked.folder, asked.json)


class Help(argparse.HelpFormatter):
    """As wide as other prose; lines of a description stay apart."""

    def __init__(self, prog: str, **kwargs: Any):
        super().__init__(prog, width=int(min(columns(), PAGE)), **kwargs)

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        return prose(text)


class Parser(argparse.ArgumentParser):
    """One look for every verb, and complaints that cannot command the terminal."""

    def __init__(self, prog: str, description: str, **kwargs: object):
        kwargs |= {
            "prog": prog,
            "description": description,
            "epilog": EPILOG,
            "allow_abbrev": False,
        }
        super().__init__(formatter_class=Help, **kwargs)  # type: ignore[arg-type]

    def error(self, message: str) -> NoReturn:
        from undrift.cli.talk import refuse

        refuse([message], f"See: {self.prog} --help")


def json_option(verb: argparse.ArgumentParser) -> None:
    verb.add_argument("--json", action="store_true", help="print JSON instead of a table")


def pause_option(verb: argparse.ArgumentParser) -> None:
    help = "time between checkpoints (default: 10)"
    verb.add_argument("--checkpoint", type=seconds, metavar="SECONDS", help=help)


def store_option(verb: argparse.ArgumentParser) -> None:
    places = ("auto", "device", "host", "file")
    help = "where client states are kept: device, host (main memory, beside a GPU), file, or auto: the first with room"
    verb.add_argument("--store", choices=places, default="auto", metavar="PLACE", help=help)


def deterministic_option(verb: argparse.ArgumentParser) -> None:
    help = "the same bits whenever the run is repeated on one device (on a CPU that is always so)"
    verb.add_argument("--deterministic", action="store_true", help=help)


def log_option(verb: argparse.ArgumentParser) -> None:
    names = ("tensorboard", "mlflow")
    help = "also log every row to tensorboard (in RUN/tensorboard) or mlflow; may be given twice"
    verb.add_argument(
        "--log",
        dest="logs",
        action="append",
        choices=names,
        default=[],
        metavar="LOGGER",
        help=help,
    )


def nearest(word: str) -> None:
    """Refuse a verb that does not exist, with the nearest one that does."""
    if word not in VERBS:
        from undrift.cli.talk import refuse
        from undrift.core.params import unknown

        refuse([unknown("command", word, VERBS)])


def seconds(text: str) -> float:
    value = float(text)
    if not 0 <= value < float("inf"):
        raise ValueError
    return value


def positive(text: str) -> float:
    if not (value := seconds(text)):
        raise ValueError
    return value


def natural(text: str) -> int:
    if (value := int(text)) < 1:
        raise ValueError
    return value
