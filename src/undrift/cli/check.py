"""``check``: the methods, problems, networks and objectives of a file, put to the test."""

from __future__ import annotations

from argparse import Namespace
from pathlib import Path
from typing import TYPE_CHECKING

from undrift.cli.output import FAILED, OK, refuse, result, result_json, say
from undrift.cli.parser import Parser
from undrift.report.numbers import count
from undrift.spec.user_files import execute

if TYPE_CHECKING:
    from undrift.check.found import Checked


def add(parser: Parser) -> None:
    parser.description = (
        "Check what a file defines. A method: does it do what it declares? A problem (a function "
        "-> undrift.Problem): gradients against finite differences, mini-batches, metrics over "
        "sites, precision. A network (a function -> nn.Module): shapes, first weights, batch "
        "normalisation, buffers. An objective: its gradient, padding, clients beside others."
    )
    parser.add_argument("file", type=Path, metavar="FILE", help="a Python file; it is executed")
    parser.json()


def main(args: Namespace) -> int:
    if args.file.suffix != ".py" or not args.file.is_file():
        refuse([f"{args.file}: no Python file; a spec is tried by undrift run --check"])
    plugin = execute(args.file)
    say("One moment: loading torch.")
    from undrift.check.found import checked

    found = checked(plugin)
    failed = {thing.name: examine(thing, args.json) for thing in found}
    if args.json:
        result_json(failed)
    if any(failed.values()):
        return FAILED
    uses = "; ".join(thing.use for thing in found)
    say(f"All checks passed. To run it, name it in a spec beside the file: {uses}")
    return OK


def examine(thing: Checked, as_json: bool) -> dict[str, str]:
    """The failed checks of one thing and why; prints a line for each check as it ends."""
    tell = say if as_json else result
    tell(thing.name)
    ended, told = [], set[str]()
    for check in thing.results():
        ended.append(check)
        text = check.failure or check.inapplicable or check.title
        word = "FAILED" if check.failure else "skipped" if check.inapplicable else "passed"
        # What stops one check stops others, in words that differ by sizes alone: it is told once.
        if (words := "".join(filter(str.isalpha, check.failure or check.name))) not in told:
            tell(f"  {word}  {check.name}: {text}")
        told.add(words)
    failures = {check.name: check.failure for check in ended if check.failure}
    skipped = sum(check.inapplicable is not None for check in ended)
    passed = len(ended) - len(failures) - skipped
    without = f", {skipped} skipped" if skipped else ""
    alike = " (others as these)" if len(ended) > len(told) else ""
    tell(f"{count(passed, 'check')} passed{without}, {len(failures)} failed{alike}")
    return failures
