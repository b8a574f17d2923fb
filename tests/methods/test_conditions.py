"""Hyper-parameters that do not go together are refused by the one to change."""

import pytest

import undrift as ud
from undrift.core import BadParameters
from undrift.objectives import FedNTD


@pytest.mark.parametrize("make, field", [
    (lambda: ud.FedSpeed(lr=0.1, prox=False), "prox"),
    (lambda: ud.FedPD(lr=0.1, eta=0.1, p=1.0), "p"),
    (lambda: FedNTD(beta=1.5, form="mix"), "beta"),
])  # fmt: skip
def test_the_parameter_to_change(make, field):
    with pytest.raises(BadParameters) as error:
        make()
    assert set(error.value.problems) == {field}


def test_conditions_wait_for_theory():
    assert ud.FedPD(lr="theory", eta="theory", p=1.0).open_fields() == ["eta", "lr"]
