"""The command line: one module per verb, loaded when the verb is used.

A verb's module has ``add(parser)``, which declares its options, and ``main(args)``, which does the
work and returns the exit code, or nothing if it has succeeded. It need not catch what is wrong with
its input, nor files that cannot be read or written: that is reported here. Other packages add verbs
by an entry point of the group ``undrift.verbs``: a package with such a table ``VERBS`` and a module
for each of them.
"""

from __future__ import annotations

import argparse
import io
import os
import sys
import traceback
import warnings
from collections.abc import Sequence
from importlib import import_module
from importlib.metadata import entry_points

from undrift import __version__
from undrift.cli.output import FAILED, OK, refuse, say
from undrift.cli.parser import Parser
from undrift.cli.stop import Stop, code, tell

DEBUG = "UNDRIFT_DEBUG"
"""The environment variable that shows tracebacks."""
VERBS = {
    "demo": "see client drift, and methods without it, in seconds",
    "run": "run every method of a spec with every seed",
    "advise": "find out which method suits the problem of a spec",
    "tune": "find the best hyper-parameters of every method of a spec",
    "resume": "continue a run that was interrupted",
    "gather": "make one run of several: parts of it, other seeds, other methods",
    "federate": "run a spec with clients on machines of their own, by Flower",
    "join": "be a client of a federation",
    "compare": "compare recorded runs",
    "report": "write recorded runs as one HTML file",
    "export": "copy a model of a run to a file",
    "list": "list methods, objectives, problems or the settings of a spec",
    "show": "show a method: update, parameters, source",
    "cite": "print the papers of methods, or undrift itself, as BibTeX",
    "new": "start a method, a problem, a network or an objective of your own",
    "check": "check what a file of your own defines",
    "data": "fetch, describe or verify image sets",
}


def main(argv: Sequence[str] | None = None) -> int:
    """The entry point of ``undrift``; returns the exit code."""
    words = [*(sys.argv[1:] if argv is None else argv)]
    warnings.formatwarning = lambda message, *about: f"warning: {message}\n"
    with Stop(None):
        try:
            return answer(words)
        except KeyboardInterrupt as stop:
            tell("Interrupted.")
            return code(*stop.args[:1])
        except BrokenPipeError:  # the reader has seen enough
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            return 0
        except Exception as error:
            if told(error):
                return FAILED
            if os.environ.get(DEBUG):
                raise
            return unexpected(error)


def answer(words: list[str]) -> int:
    """Parse a command line and run its verb; only that one gets its options."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # a terminal or file may lack some characters
            stream.reconfigure(errors="backslashreplace")
    if completes := "_ARGCOMPLETE" in os.environ:  # a shell asks for the next word of the line
        words = os.environ["COMP_LINE"].split()[1:]
    name = words[0] if words and not words[0].startswith("-") else ""
    others = {} if name in VERBS else added()
    if completes and name not in (*VERBS, *others):
        name = ""
    if name and name not in VERBS and name not in others:
        from undrift.core.params import unknown

        refuse([unknown("command", name, [*VERBS, *others])])
    parser = Parser(
        "undrift", "Federated optimisation without client drift. Start with: undrift demo"
    )
    parser.add_argument("--version", action="version", version=f"undrift {__version__}")
    verbs = parser.add_subparsers(metavar="COMMAND", parser_class=Parser)
    for known, help in VERBS.items():
        verbs.add_parser(known, help=help)
    for known, (_, help) in others.items():
        verbs.add_parser(known, help=help)
    if name:
        package, _ = others.get(name, (__name__, ""))
        verb = import_module(f"{package}.{'listing' if name == 'list' else name}")
        verb.add(verbs.choices[name])
    if completes:
        from argcomplete import autocomplete

        autocomplete(parser)  # which ends here
    args = parser.parse_args(words, argparse.Namespace(words=words))
    if not name:
        parser.print_help()
        return 2
    if getattr(args, "deterministic", False):
        from undrift.runs.environment import deterministic

        deterministic()
    return int(verb.main(args) or OK)


def added() -> dict[str, tuple[str, str]]:
    """The verbs of other packages: their package and one sentence."""
    packages = [import_module(entry.value) for entry in entry_points(group="undrift.verbs")]
    return {verb: (at.__name__, text) for at in packages for verb, text in at.VERBS.items()}


def told(error: Exception) -> bool:
    """Refuse bad input; whether an error was of the world outside, and is reported."""
    from undrift.core.params import BadParameters
    from undrift.flower.compat import NoFederation
    from undrift.records.journal import BadFolder
    from undrift.spec.errors import BadFile, BadSpec

    if isinstance(error, BadSpec):
        refuse(error.complaints)
    if isinstance(error, BadFolder | BadFile | BadParameters):
        refuse([error])
    if isinstance(error, OSError) and error.filename:
        say(f"{error.filename}: {error.strerror}")
    elif isinstance(error, OSError | NoFederation):
        say(str(error))
    return isinstance(error, OSError | NoFederation)


def unexpected(error: Exception) -> int:
    """One line about an error that is a fault of undrift."""
    *_, (frame, line) = traceback.walk_tb(error.__traceback__)
    words = " ".join(str(error).split())[:300]
    say(
        f"Unexpected {type(error).__name__} at {frame.f_code.co_filename}:{line}: {words}. "
        f"Please report it, with what {DEBUG}=1 shows."
    )
    return FAILED
