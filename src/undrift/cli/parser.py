"""Parsers of the command line: one look, one shape of complaint, and the options verbs share."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, NoReturn

from undrift.cli.output import refuse
from undrift.core.params import Count, NonNegative, Positive, describe, fits
from undrift.report.table import PAGE, prose, terminal_width

EPILOG = """\
Results go to standard output, messages and progress to standard error. \
Tables are as wide as the terminal or as COLUMNS says; in a pipe or a file every row is one line.
Exit codes: 0 success; 1 failure (of a run: every method failed); 2 bad input, nothing was run; \
130 interrupted by Ctrl-C, 143 by SIGTERM, 129 by SIGHUP, which act like Ctrl-C. \
The key TAB completes commands and options after pip install 'undrift[completion]' and, in the \
file that your shell starts with, eval "$(register-python-argcomplete undrift)"; in fish \
register-python-argcomplete --shell fish undrift | source. \
UNDRIFT_DEBUG=1 shows the traceback of an unexpected error."""
RUN = "folder of a run, or its name in runs/"


class Help(argparse.HelpFormatter):
    """As wide as other prose; the lines of a description stay separate."""

    def __init__(self, prog: str) -> None:
        super().__init__(prog, width=int(min(terminal_width(), PAGE)))

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        return prose(text)


class Parser(argparse.ArgumentParser):
    """Complaints are one line without control characters, and name the page that helps."""

    def __init__(self, prog: str, description: str = "") -> None:
        super().__init__(
            prog=prog,
            description=description,
            epilog=EPILOG,
            formatter_class=Help,
            allow_abbrev=False,
        )

    def error(self, message: str) -> NoReturn:
        refuse([message], f"See: {self.prog} --help")

    def file(self, *flags: str, help: str, metavar: str = "FILE", required: bool = False) -> None:
        self.add_argument(*flags, type=Path, metavar=metavar, help=help, required=required)

    def folder(self, *flags: str, default: str, help: str) -> None:
        """An option that names a folder; ``help`` ends with its default."""
        text = f"{help} (default: {default})"
        self.add_argument(*flags, type=Path, default=Path(default), metavar="FOLDER", help=text)

    def json(self) -> None:
        self.add_argument("--json", action="store_true", help="print JSON instead of a table")


def number(hint: object) -> Callable[[str], Any]:
    """Reads an option as the setting ``hint`` is read."""

    def taken(text: str) -> Any:
        for kind in (int, float):
            with suppress(ValueError):
                if fits(value := kind(text), hint):
                    return value
        raise argparse.ArgumentTypeError(f"{text!r} is not allowed: {describe(hint)}")

    return taken


natural, positive, seconds = number(Count), number(Positive), number(NonNegative)
