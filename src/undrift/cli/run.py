"""``run``: a spec becomes a folder and a table."""

from __future__ import annotations

import os
import signal
import traceback
from argparse import Namespace
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, get_args

from undrift.cli.output import FAILED, OK, refuse, result, result_json, say
from undrift.cli.parser import Parser, natural, seconds
from undrift.cli.stop import Stop
from undrift.engines.options import RENDEZVOUS, StatePlace
from undrift.records.folder import BadFolder, Folder
from undrift.records.part import WHOLE, RunPart
from undrift.records.rows import ENDS
from undrift.report.comparison import Comparison, compare, read
from undrift.report.numbers import count
from undrift.runs.events import (
    Began,
    Emit,
    Ended,
    Event,
    LeftOut,
    Measured,
    ignore,
)
from undrift.runs.progress import Progress
from undrift.runs.tensorboard import LOGGER, missing
from undrift.spec.errors import BadSpec
from undrift.spec.reader import load
from undrift.spec.schema import Spec

if TYPE_CHECKING:
    from undrift.runs.prepare import Build

HERE = ("simulate", "wire", "distributed")


def add(parser: Parser) -> None:
    parser.description = (
        "Run every method of a spec with every seed. The results go to a folder of the spec's "
        "name: spec.toml, environment.json, metrics.jsonl, metrics.parquet, summary.json, models, "
        "checkpoints, log.txt and a figure, such as gap.png or accuracy.png. Ctrl-C ends the run "
        "after the current round; the same command, or undrift resume, continues from there. "
        "Ctrl-C twice stops at once. "
        "With more rounds, as by -s rounds=200, methods go on from where they ended. "
        'Methods, problems, networks, data and objectives with a file (file = "mine.py") are '
        "Python code, which is executed."
    )
    parser.add_argument("spec", metavar="SPEC", help="TOML file that says what to run")
    add_options(parser, new=True, here=True)
    parser.add_argument(
        "--part",
        default=WHOLE,
        metavar="K/N",
        help="only the K-th of N even shares of methods and seeds, in a folder NAME-part-K-of-N of "
        "its own; undrift gather makes one run of them",
    )
    parser.add_argument(
        "--check",
        action="store_true",
        help="run two rounds of each method, write nothing, and estimate what all of it takes",
    )


def add_changes(parser: Parser) -> None:
    """The options that change a spec, and say where folders go."""
    parser.add_argument(
        "-s",
        "--set",
        dest="changes",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="change the spec: rounds=50, problem.clients=20, cohort.size=5, or method.lr=0.05 for "
        "every method with an lr",
    )
    parser.folder("--out", default="runs", help="where run folders go")


def add_options(parser: Parser, new: bool = False, here: bool = False) -> None:
    """The options of ``run``, ``resume`` and ``federate``; those of a ``new`` run change its spec
    and name its folder, those of one that is trained ``here`` choose the engine.
    """
    if new:
        add_changes(parser)
        parser.add_argument(
            "--overwrite", action="store_true", help="replace an earlier run of the same name"
        )
    if here:
        parser.add_argument(
            "--engine",
            choices=HERE,
            metavar="NAME",
            help="the engine, in place of the spec's [engine]: simulate, wire or distributed",
        )
        parser.add_argument(
            "--workers",
            type=natural,
            metavar="N",
            help="processes on this machine that share each run, with --engine distributed",
        )
        parser.add_argument(
            "--store",
            choices=get_args(StatePlace),
            default="auto",
            metavar="PLACE",
            help="where client states are kept: device, host (main memory, beside a GPU), file, or "
            "auto: the first with room",
        )
    parser.add_argument(
        "--checkpoint",
        type=seconds,
        metavar="SECONDS",
        help="time between checkpoints (default: 10)",
    )
    parser.add_argument(
        "--jobs",
        type=natural,
        default=1,
        metavar="N",
        help="processes that share methods and seeds; no number depends on it (default: 1)",
    )
    parser.add_argument(
        "--deterministic",
        action="store_true",
        help="the same bits whenever the run is repeated on one device (on a CPU always so)",
    )
    parser.add_argument(
        "--log",
        dest="logs",
        action="append",
        choices=[LOGGER],
        default=[],
        metavar="LOGGER",
        help="also log every row to tensorboard (in RUN/tensorboard)",
    )
    parser.json()


def read_spec(args: Namespace, *flags: str, tune: bool = False) -> Spec:
    """The spec that a command line names, as it and ``flags`` change it."""
    code = partial(executes, Path(args.spec).parent)
    return load(args.spec, [*args.changes, *flags], code, tune)


def main(args: Namespace) -> int:
    args.part = RunPart.read(args.part)
    spec = read_spec(args, *placed(args))
    with together(spec, args) as code:
        if code is not None:
            return code
        if args.check:
            from undrift.cli.rehearse import rehearse

            return rehearse(spec, args.part, args.json)
        folder = Folder(args.out / args.part.folder(spec.name))
        if is_left(spec, folder, args):
            return perform(spec, folder, args.overwrite, args)
        return finished(folder, args, "; --overwrite runs it again")


def together(spec: Spec, args: Namespace) -> AbstractContextManager[int | None]:
    """Enter with ``None`` in a process that works alone or leads, else with an exit code."""
    if spec.engine.name in ("simulate", "wire") and "RANK" not in os.environ:
        return nullcontext()
    from undrift.cli.launch import together

    return together(spec, args)


def is_left(spec: Spec, folder: Folder, args: Namespace, longer: bool = True) -> bool:
    """Whether there is something to run of a spec, also if it is ``longer`` than what is there;
    refuses a folder that holds another run.
    """
    state = folder.state(spec, args.part)
    if args.overwrite or state in ("new", "unfinished") or (longer and state == "shorter"):
        return True
    if state != "same":
        folder.refuse_changes(spec, args.part)
    return False


def finished(folder: Folder, args: Namespace, more: str = "") -> int:
    """Print the table of a run that is there already."""
    folder.tidy()
    say(f"{folder.path} holds this run already{more}.")
    return report(folder, args.json)


def placed(args: Namespace) -> list[str]:
    """What ``--engine``, ``--store`` and ``--workers`` change in a spec."""
    store = None if args.store == "auto" else args.store
    given = {"engine": args.engine, "engine.store": store, "engine.workers": args.workers}
    return [f"{key}={value}" for key, value in given.items() if value is not None]


def executes(place: Path, file: str) -> None:
    """Says what is about to be executed, once where several processes do it."""
    if os.environ.get("RANK", "0") == "0" and RENDEZVOUS not in os.environ:
        say(f"Executes {place / file}.")


def perform(
    spec: Spec,
    folder: Folder,
    afresh: bool,
    args: Namespace,
    build: Build | None = None,
    listen: Emit = ignore,
) -> int:
    """Run what is left of a spec, and print the table; ``args`` has :func:`add_options`.

    ``build`` builds its problems, where that is not done here.
    """
    from undrift.engines.ranks import Broken
    from undrift.runs.experiment import make
    from undrift.runs.run_experiment import run_in_folder

    if args.logs and missing():
        refuse([f"--log {LOGGER}: {missing()}"])
    if spec.engine.shared and "RANK" not in os.environ:
        from undrift.cli.launch import launch

        return launch(spec, args, lambda: unfinished(folder, spec))
    methods, seeds = count(len(spec.entries), "method"), count(len(spec.seeds), "seed")
    which = "" if args.part == WHOLE else f", {args.part}"
    say(f"{spec.name}: {methods} on {spec.problem_name}, {seeds}{which}")
    experiment = make(spec, build, args.part) if build else make(spec, part=args.part)
    labels, note = [task.label for task in experiment.tasks], experiment.tasks[0].problem.note
    bar = Progress(labels, spec.seeds, note, say, goal=experiment.rules.best)

    def hear(event: Event) -> None:
        listen(event)
        bar.show(event)
        if not isinstance(event, (Began, Measured, LeftOut, Ended)):
            say(str(event))

    stop = Stop()
    try:
        with stop:
            run_in_folder(
                experiment,
                folder,
                afresh=afresh,
                emit=hear,
                stop=stop,
                pause=args.checkpoint,
                loggers=args.logs,
                jobs=args.jobs,
            )
    except OSError:
        unfinished(folder, spec)  # the log may be what cannot be written
        raise
    except (BadSpec, BadFolder):
        raise
    except Broken as error:
        say(str(error))
        unfinished(folder, spec, str(error))
        return FAILED
    except KeyboardInterrupt:
        stop.number = stop.number or signal.SIGINT
    except Exception as error:  # that nobody foresaw
        unfinished(folder, spec, "".join(traceback.format_exception(error)).rstrip())
        raise
    finally:
        bar.close()
    if not folder.complete:
        unfinished(folder, spec, "interrupted" if stop.asked else "unfinished")
        return stop.code if stop.asked else FAILED
    code = report(folder, args.json, again=True)
    say(f"\nKept in {folder.path}.")
    say(f"In a browser: undrift report {folder.path}")
    return code


def unfinished(folder: Folder, spec: Spec, why: str = "") -> None:
    """Log why a run broke off, and say how to continue it; nothing if it had not begun."""
    if not folder.file("spec.toml").is_file():
        return
    if why:
        folder.log(why)
        folder.close()
    rows = count(len(folder.rows()), "row")
    say(f"Unfinished. Kept: {rows} in {folder.file('metrics.jsonl')}.")
    how = f"undrift resume {folder.path}{' --trust' if spec.sources else ''}"
    if spec.engine.run_by:  # clients who keep their data are asked by that command alone
        how = f"the same {spec.engine.run_by} command"
    say(f"Continue: {how}. See them: undrift compare {folder.path}")


def figure(found: Comparison) -> str:
    """The name of its file: that of what the run is judged by, without a path."""
    return Path(f"{found.column}.png").name


def draw(folder: Folder, found: Comparison) -> None:
    """The figure of a run, in its folder."""
    from undrift.report.figures import image, panels

    title = f"{found.title}: {found.runs[0].problem['name']}"
    folder.write(figure(found), image(panels({title: found})))


def report(folder: Folder, as_json: bool, again: bool = False) -> int:
    """Print the table of a finished run, and draw its figure if there is none, or ``again``; the
    exit code.
    """
    (found,) = compare(read([folder]))
    (run,) = found.runs
    if run.rows and (again or not folder.file(figure(found)).exists()):
        draw(folder, found)
    if as_json:
        from undrift.report.clients import by_client

        result_json(
            {
                "name": folder.path.name,
                "folder": str(folder.path),
                "part": folder.part,
                "target": found.target,
                "note": found.note,
                "varied": found.varied[0],
                "methods": [s.document() for s in found.summaries],
                "runs": [*map(vars, run.outcomes)],
                "left_out": [one.document() for one in by_client(run.left_out)],
            }
        )
    else:
        result(found.results().text())
        if run.left_out:
            from undrift.report.clients import left_out

            result(f"\n{left_out(run.left_out, run.rows).text()}")
    return FAILED if all(ENDS[o.status].kind == "bad" for o in run.outcomes) else OK
