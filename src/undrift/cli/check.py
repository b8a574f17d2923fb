"""``check``: the battery on the methods of a file."""

from __future__ import annotations

from argparse import Namespace
from pathlib import Path

from undrift.cli.output import FAILED, OK, refuse, result, result_json, say
from undrift.cli.parser import Parser
from undrift.core.method import Method
from undrift.report.text import count
from undrift.spec.plugins import BadFile, load


def add(parser: Parser) -> None:
    parser.description = (
        "Run on each method of a file the checks that every method of undrift passes: does it do "
        "what it declares?"
    )
    text = "a Python file with your methods; it is executed"
    parser.add_argument("file", type=Path, metavar="FILE", help=text)
    parser.json()


def main(args: Namespace) -> int:
    file: Path = args.file
    try:
        found = load(file)
    except BadFile as error:
        refuse([error])
    say("One moment: loading torch.")
    failed = {cls.__name__: examine(cls, args.json) for cls in found}
    if args.json:
        result_json(failed)
    if any(failed.values()):
        return FAILED
    use = f"file = {file.name!r}, name = {found[0].__name__!r}"
    say(f"All checks passed. To run it, name it in a spec beside the file: {use}")
    return OK


def examine(cls: type[Method], as_json: bool) -> dict[str, str]:
    """The failed checks of one method and why; prints a line for each check as it ends."""
    from undrift.check.battery import examine as results

    tell = say if as_json else result
    tell(cls.__name__)
    ended = []
    for check in results(cls):
        ended.append(check)
        word, text = ("FAILED", check.failure) if check.failure else ("passed", check.title)
        tell(f"  {word}  {check.name}: {text}")
    failures = {check.name: check.failure for check in ended if check.failure}
    tell(f"{count(len(ended) - len(failures), 'check')} passed, {len(failures)} failed")
    return failures
