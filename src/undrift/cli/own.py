"""``new`` and ``check``: a method of your own."""

from __future__ import annotations

from pathlib import Path

from undrift.check import template as own
from undrift.cli.talk import FAILED, OK, refuse, result, result_json, say
from undrift.report.text import count
from undrift.runs.plugins import load


def new(name: str, folder: Path) -> int:
    """Write the file of a method to start from."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        file = own.write(name, folder)
    except own.BadFile as error:
        refuse([error])
    except OSError as error:
        say(f"{error.filename or folder}: {error.strerror or error}")
        return FAILED
    result(str(file))
    say(f"Written. Next: undrift check {file}")
    return OK


def check(file: Path, as_json: bool) -> int:
    """Put every method of a file through the battery."""
    try:
        found = load(file)
    except own.BadFile as error:
        refuse([error])
    say("One moment: loading torch.")
    failed = {cls.__name__: examine(cls, as_json) for cls in found}
    if as_json:
        result_json(failed)
    if any(failed.values()):
        return FAILED
    say(
        f"All is well. To run it, name it in a spec beside the file: file = {file.name!r}, name = {found[0].__name__!r}"
    )
    return OK


def examine(cls: type, as_json: bool) -> dict[str, str]:
    """The failed checks of one method and why; a line for each check as it ends."""
    from undrift.check import CHECKS, Failure

    tell = say if as_json else result
    tell(cls.__name__)
    failures = {}
    for name, test in CHECKS.items():
        words = (test.__doc__ or name).strip().splitlines()[0]
        try:
            test(cls)
        except Failure as failure:
            failures[name] = str(failure)
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # whatever a user's method does, the other checks still run
            failures[name] = f"it stops with {type(error).__name__}: {error}"
        tell(
            f"  FAILED  {name}: {failures[name]}"
            if name in failures
            else f"  passed  {name}: {words}"
        )
    tell(f"{count(len(CHECKS) - len(failures), 'check')} passed, {len(failures)} failed")
    return failures
