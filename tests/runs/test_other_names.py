"""Names and objects of other libraries are refused with what to give instead."""

import pytest
import torch

import undrift as ud


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda: ud.FedAvg(learning_rate=0.1), "'learning_rate'; did you mean lr?"),
        (lambda: ud.Scaffold(step_size=0.1), "'step_size'; did you mean lr?"),
        (lambda: ud.FedAvg(lr=0.1, serverlr=1.0), "'serverlr'; did you mean server_lr?"),
        (lambda: ud.Save("x", overwite=True), "did you mean overwrite?"),
        (lambda: run(local="sgd"), "'local'; did you mean training?"),
        (lambda: run(optimizer="adamw"), "'optimizer'; did you mean training?"),
        (lambda: optimiser("sgd"), "those of SGD where optimiser is left out"),
        (lambda: optimiser(torch.optim.SGD), "those of SGD where optimiser is left out"),
        (lambda: optimiser(torch.optim.AdamW), r"give undrift.AdamW\(...\) or"),
        (lambda: optimiser(torch.optim.Adam([torch.zeros(1)])), r"give undrift.AdamW\(...\)"),
        (lambda: optimiser(torch.optim.Rprop), "not one of torch's"),
    ],
)
def test_it_says_what_to_give(call, said):
    with pytest.raises(ud.BadParameters, match=said):
        call()


def run(**settings):
    return ud.run(ud.FedAvg(lr=0.1), "quadratic", rounds=1, **settings)


def optimiser(given):
    return run(training={"optimiser": given})


def test_what_is_right_is_made_as_before():
    method = ud.FedAvg(lr=0.1)
    assert method == ud.FedAvg(lr=0.1, server_lr=1.0) and method.scaled(2).lr == 0.2
    with pytest.raises(TypeError, match="lr"):
        ud.FedAvg()
