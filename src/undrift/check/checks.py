"""What the checks of methods, problems, networks and objectives share."""

from __future__ import annotations

import dataclasses
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple, TypeVar

import torch
from torch import Tensor

from undrift.core.params import hints, meanings, section
from undrift.problems.randomness import generators
from undrift.spec.user_files import OWN

FINE, CPU = torch.float64, torch.device("cpu")
"""Where numbers are compared."""
STEP = 1e-5
"""Of finite differences."""
Thing = TypeVar("Thing")
Check = Callable[[Thing], None]
"""Raises :class:`Failure` if something is wrong with a thing."""


class Failure(AssertionError):
    """Something does not do what it declares."""


class Inapplicable(Exception):
    """A check that says nothing about this thing, and why."""


def expect(condition: object, sentence: str) -> None:
    if not condition:
        raise Failure(sentence)


def expect_meanings(cls: type) -> None:
    """Fail unless the docstring of a dataclass explains each of its fields."""
    missing = [f.name for f in dataclasses.fields(cls) if f.name not in meanings(cls)]
    expect(not missing, f"the docstring explains no {', '.join(missing)} under Args")
    for name in {line.partition(":")[0] for line in section(cls, "Args")} & vars(cls).keys():
        expect(name in hints(cls), f"{name} needs a type to be a parameter: {name}: Positive = ...")


def close(one: Tensor, other: Tensor, tolerance: float = 1e-9) -> bool:
    """Whether the largest difference is small beside the largest entry, or beside 1."""
    if one.shape != other.shape:
        return False
    one, other = one.detach(), other.detach()
    return float((one - other).abs().max()) <= tolerance * max(1.0, float(other.abs().max()))


def expect_slope(loss: Callable[[Tensor], float], x: Tensor, slope: Tensor) -> None:
    """Fail unless ``slope`` is how a loss rises at ``x``, by finite differences."""
    for k in range(3):
        way = torch.randn(len(x), dtype=x.dtype, generator=torch.Generator().manual_seed(k))
        way *= STEP / way.norm()
        rise, claimed = loss(x + way) - loss(x - way), 2 * float(slope @ way)
        expect(
            abs(rise - claimed) <= 1e-4 * max(2 * STEP, abs(rise)),
            f"the loss rises by {rise:.6g} where the gradient says {claimed:.6g}",
        )


def shape_of(found: object) -> str:
    return str(list(found.shape)) if isinstance(found, Tensor) else f"a {type(found).__name__}"


@contextmanager
def drawing_nothing(allowed: str = "", remedy: str = "") -> Iterator[None]:
    """Fail if a global generator other than the ``allowed`` one is used inside."""
    before = generators()
    yield
    for name, state in generators().items():
        expect(
            name == allowed or state == before[name], f"{name}'s global generator is used{remedy}"
        )


def by_name(*checks: Check[Thing]) -> dict[str, Check[Thing]]:
    """Checks by the names of their functions."""
    return {check.__name__: check for check in checks}


class Result(NamedTuple):
    """How one check ended."""

    name: str
    title: str
    failure: str | None = None
    inapplicable: str | None = None
    """Why it says nothing about this thing."""


def results(thing: Thing, checks: Mapping[str, Check[Thing]]) -> Iterator[Result]:
    """Put a thing through its checks, one after another."""
    for name, check in checks.items():
        ended = Result(name, (check.__doc__ or name).strip().splitlines()[0])
        try:
            check(thing)
        except Inapplicable as error:
            ended = ended._replace(inapplicable=str(error))
        except Failure as error:
            ended = ended._replace(failure=str(error))
        except (
            Exception,
            SystemExit,
        ) as error:  # whatever a user's code does, the other checks still run
            ended = ended._replace(failure=stopped(error))
        yield ended


def stopped(error: BaseException) -> str:
    """What a user's code raised, and the line of a user's file where, if it is from one."""
    lines = [
        f" ({Path(frame.f_code.co_filename).name}:{line})"
        for frame, line in traceback.walk_tb(error.__traceback__)
        if str(frame.f_globals.get("__name__")).startswith(OWN)
        and frame.f_code.co_filename != "<string>"  # what dataclasses write
    ]
    return f"it stops with {type(error).__name__}{''.join(lines[-1:])}: {error}"
