"""Logistic regression."""

from torch import nn

from undrift.models.net import Net


def linear(channels: int, size: int, classes: int) -> Net:
    """One linear layer on the pixels."""
    return Net([], nn.Flatten(), nn.Linear(channels * size**2, classes))
