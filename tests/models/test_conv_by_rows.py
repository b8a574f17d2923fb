"""Convolutions by rows against torch's own."""

import copy

import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st
from torch import nn

from undrift.models.convolutions import ConvByRows, convolutions_by_rows
from undrift.models.net import channels_last

PAIRS = st.tuples(st.integers(1, 6), st.integers(1, 6))


@pytest.fixture(autouse=True)
def none_is_small(monkeypatch):
    monkeypatch.setattr("undrift.models.convolutions.LARGE", 0)


def gradients(layer, x, toward):
    wanted = [v for v in (x, *layer.parameters()) if v.requires_grad]
    return torch.autograd.grad((layer(x) * toward).sum(), wanted)


@settings(max_examples=80, deadline=None)
@given(
    PAIRS,
    PAIRS,
    st.tuples(st.integers(0, 3), st.integers(0, 3)),
    st.integers(1, 3),
    st.booleans(),
    st.lists(st.booleans(), min_size=2, max_size=2).filter(any),
)
@example((6, 6), (1, 1), (3, 3), 1, True, [True, True])
def test_rows_are_the_convolution(kernel, size, padding, channels, bias, wanted):
    if any(n + 2 * p < k for n, p, k in zip(size, padding, kernel, strict=True)):
        return
    conv = nn.Conv2d(channels, 4, kernel, padding=padding, bias=bias).double()
    ours = convolutions_by_rows(copy.deepcopy(conv))
    assert type(ours) is ConvByRows and type(conv) is nn.Conv2d
    x = channels_last(torch.randn(3, channels, *size, dtype=torch.float64))
    x.requires_grad_(wanted[0])
    for layer in (conv, ours):
        layer.weight.requires_grad_(wanted[1])
    torch.testing.assert_close(conv(x), ours(x), rtol=1e-12, atol=1e-12)
    toward = torch.randn_like(conv(x))
    for theirs, mine in zip(gradients(conv, x, toward), gradients(ours, x, toward), strict=True):
        torch.testing.assert_close(theirs, mine, rtol=1e-12, atol=1e-12)


def test_float32_is_within_rounding_of_float64():
    conv = convolutions_by_rows(nn.Conv2d(8, 16, 5, padding=1))
    exact = copy.deepcopy(conv).double()
    x = channels_last(torch.randn(10, 8, 12, 12)).requires_grad_()
    twin = x.detach().double().requires_grad_()
    toward = torch.randn(10, 16, 10, 10)
    outputs = conv(x), exact(twin)
    assert outputs[0].is_contiguous(memory_format=torch.channels_last)
    found = [outputs[0], *gradients(conv, x, toward)]
    want = [outputs[1], *gradients(exact, twin, toward.double())]
    for one, other in zip(found, want, strict=True):
        assert one.dtype == torch.float32
        assert (one - other).abs().max() <= 1e-6 * other.abs().max() * other.numel() ** 0.5


@pytest.mark.parametrize(
    "x",
    [
        torch.randn(3, 2, 6, 6),
        torch.randn(3, 1, 6, 6),
        torch.randn(2, 6, 6),
        channels_last(torch.randn(3, 4, 6, 6))[:, :2],
    ],
    ids=["channels first", "one channel", "one image", "some channels"],
)
def test_what_does_not_lie_so_is_torchs(x):
    """With the layout of its outputs, on which a ``view`` may depend."""
    conv = nn.Conv2d(x.shape[-3], 4, 3)
    ours = convolutions_by_rows(copy.deepcopy(conv))
    assert torch.equal(conv(x), ours(x)) and conv(x).stride() == ours(x).stride()


def test_small_ones_are_torchs(monkeypatch):
    conv = convolutions_by_rows(nn.Conv2d(2, 4, 3))
    x = channels_last(torch.randn(3, 2, 6, 6))
    assert "_Product" in type(conv(x).grad_fn).__name__
    monkeypatch.setattr("undrift.models.convolutions.LARGE", 3 * 36 * 72 + 1)
    assert "Convolution" in type(conv(x).grad_fn).__name__


def test_what_rows_cannot_compute_stays_as_it_is():
    others = [
        nn.Conv2d(4, 4, 3, stride=2),
        nn.Conv2d(4, 4, 3, groups=2),
        nn.Conv2d(4, 4, 3, dilation=2),
        nn.Conv2d(4, 4, 3, padding="same"),
        nn.Conv2d(4, 4, 3, padding=1, padding_mode="circular"),
    ]
    net = convolutions_by_rows(nn.Sequential(*others, nn.Conv2d(4, 4, 3)))
    assert [type(layer) for layer in net] == [nn.Conv2d] * 5 + [ConvByRows]
