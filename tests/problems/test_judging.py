"""Networks whose group norms are fused when they are judged, as on a GPU."""

from __future__ import annotations

import warnings

import pytest
import torch
from torch import Tensor, nn

from undrift.models import group_norm
from undrift.models.architectures import BasicBlock
from undrift.models.group_norm import FusedGroupNorm
from undrift.models.net import seeded
from undrift.problems.neural import network as networks
from undrift.problems.neural.network import FlatNetwork


class Viewing(nn.Module):
    """It takes no images with channels last."""

    def __init__(self) -> None:
        super().__init__()
        self.norm, self.head = nn.GroupNorm(1, 3), nn.Linear(48, 2)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.norm(x).view(len(x), -1))


def blocks() -> nn.Module:
    with seeded(0):
        first = [nn.Conv2d(3, 8, 3, padding=1), nn.GroupNorm(2, 8), nn.ReLU()]
        last = [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(16, 2)]
        return nn.Sequential(*first, BasicBlock(8, 16, 2, 2), *last)


def flat(net: nn.Module) -> tuple[FlatNetwork, Tensor]:
    torch.manual_seed(0)
    network, x = FlatNetwork(net), torch.randn(2, 3, 4, 4)
    network.takes_last = network.takes_channels_last(x)
    return network, x


@pytest.fixture
def kernels(monkeypatch):
    """In the place of Triton's, which need a GPU."""

    def norm(x, residual, weight, bias, groups, eps, relu):
        assert x.is_contiguous(memory_format=torch.channels_last)
        asked.append((residual is not None, relu))
        out = nn.functional.group_norm(x, groups, weight, bias, eps)
        out = out if residual is None else out + residual
        return out.relu() if relu else out, None

    asked: list[tuple[bool, bool]] = []
    monkeypatch.setattr(networks, "TRITON", True)
    monkeypatch.setattr(group_norm, "_norm", norm)
    return asked


def refused(network: FlatNetwork, x: Tensor) -> list[str]:
    """What is said where norms are not fused."""
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        assert not network.takes_fused(x)
    return [str(one.message) for one in said]


def test_fused_norms_do_what_follows_them(kernels):
    network, x = flat(blocks())
    assert network.takes_fused(x)
    assert kernels == [(False, True), (False, True), (False, False), (True, True)]
    weights = network.start.float() + 0.1
    with torch.no_grad():
        found, expected = (network.judging(weights, fused)(x) for fused in (True, False))
    torch.testing.assert_close(found, expected)


def test_networks_that_cannot_be_fused_stay_as_they_are(kernels, monkeypatch):
    assert refused(*flat(Viewing())) == []
    assert refused(*flat(nn.Sequential(nn.Conv2d(3, 2, 4), nn.Flatten()))) == []
    network, x = flat(blocks())
    network.draws = True
    assert refused(network, x) == []
    monkeypatch.setattr(networks, "TRITON", False)
    assert refused(*flat(blocks())) == []
    assert kernels == []


def test_other_numbers_are_said_and_not_used(kernels, monkeypatch):
    monkeypatch.setattr(FusedGroupNorm, "forward", lambda self, x, *_, **__: x)
    (text,) = refused(*flat(blocks()))
    assert "it gives other numbers" in text and "torch computes them, which is slower" in text


def test_without_a_compiler_norms_are_torchs(kernels, monkeypatch):
    def norm(*_):
        raise RuntimeError("no C compiler\nmore of this")

    monkeypatch.setattr(group_norm, "_norm", norm)
    (text,) = refused(*flat(blocks()))
    assert "(no C compiler" in text and "more" not in text
