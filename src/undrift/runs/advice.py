"""What to try when a method does not work out, and where in a user's file it failed."""

from __future__ import annotations

import traceback
from pathlib import Path

from undrift.core.method import Method
from undrift.core.params import THEORY
from undrift.spec.schema import values
from undrift.theory import has_rule

STEPS = (("lr", "smaller"), ("eta", "larger"), ("lam", "larger"))
"""The hyper-parameters that tame a method that diverges, and which way to change them."""


def remedy(method: Method) -> str:
    """What to try when a method diverges."""
    given = values(method)
    tries = [f"a {how} {field}" for field, how in STEPS if field in given]
    by_theory = [
        field for field, value in given.items() if value != THEORY and has_rule(type(method), field)
    ]
    if by_theory:
        tries.append(" and ".join(f'{field} = "theory"' for field in by_theory))
    return f"try {', or '.join(tries)}" if tries else "try fewer local steps"


def failure(error: BaseException, file: str) -> str:
    """An error of a user's method, with the line of the file it is from."""
    name, frames = Path(file).name, traceback.walk_tb(error.__traceback__)
    lines = [line for frame, line in frames if Path(frame.f_code.co_filename).name == name]
    where = f" ({file}:{lines[-1]})" if lines else ""
    return f"failed: {type(error).__name__}{where}: {error}"
