"""The battery on every registered method, with no per-method code."""

import pytest

from undrift.check import CHECKS
from undrift.check.battery import Inapplicable
from undrift.core import registry
from undrift.methods import __all__ as names


@pytest.mark.parametrize("check", CHECKS.values(), ids=CHECKS)
@pytest.mark.parametrize("name", names)
def test_battery(name, check):
    try:
        check(registry[name])
    except Inapplicable as error:
        pytest.skip(str(error))
