"""Convolutions as products against torch's own."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch.func import functional_call, vmap

from undrift.models import build
from undrift.models.convolutions import (
    ConvAsMatmul,
    FirstConvAsMatmul,
    convolutions_as_products,
)
from undrift.models.layout import flatten, unflatten


@settings(max_examples=60, deadline=None)
@given(
    st.integers(1, 7),
    st.integers(1, 9),
    st.integers(1, 9),
    st.integers(1, 3),
    st.integers(0, 3),
    st.booleans(),
    st.sampled_from([[], [nn.Identity()]]),
)
def test_products_are_the_convolution(kernel, height, width, stride, padding, bias, before):
    if min(height, width) + 2 * padding < kernel:
        return
    conv = nn.Sequential(*before, nn.Conv2d(2, 3, kernel, stride, padding, bias=bias)).double()
    ours = convolutions_as_products(conv)
    assert type(ours[-1]) is (ConvAsMatmul if before else FirstConvAsMatmul)
    x = torch.randn(2, 2, height, width, dtype=torch.float64, requires_grad=True)
    outputs = conv(x), ours(x)
    torch.testing.assert_close(*outputs, rtol=1e-12, atol=1e-12)
    toward = torch.randn_like(outputs[0])
    gradients = [
        torch.autograd.grad((out * toward).sum(), [x, *layer.parameters()])
        for out, layer in zip(outputs, (conv, ours), strict=True)
    ]
    for theirs, mine in zip(*gradients, strict=True):
        torch.testing.assert_close(theirs, mine, rtol=1e-12, atol=1e-12)


def test_kernel_positions_that_only_meet_padding_are_left_out():
    layer = convolutions_as_products(nn.Conv2d(4, 4, 3, padding=1))
    layer.weight.data[:, :, 1, 1] = 0
    assert (layer(torch.randn(2, 4, 1, 1)) == layer.bias.view(1, -1, 1, 1)).all()


@pytest.mark.parametrize("name", ["cnn", "cnn-small"])
def test_stacked_networks_are_the_single_ones(name):
    net = build(name, 3, 32, 10).double()
    vector, layout = flatten(net)
    weights = vector + 0.01 * torch.randn(3, layout.dim, dtype=torch.float64)
    x = torch.randn(3, 2, 3, 32, 32, dtype=torch.float64)
    products = convolutions_as_products(net)
    stacked = vmap(lambda v, x: functional_call(products, unflatten(v, layout), (x,)))(weights, x)
    single = [functional_call(net, unflatten(weights[c], layout), (x[c],)) for c in range(3)]
    torch.testing.assert_close(stacked, torch.stack(single), rtol=1e-10, atol=1e-10)


def test_what_products_cannot_compute_stays_as_it_is():
    others = [
        nn.Conv2d(4, 4, 3, groups=2),
        nn.Conv2d(4, 4, 3, dilation=2),
        nn.Conv2d(4, 4, 3, padding="same"),
        nn.Conv2d(4, 4, 3, padding=1, padding_mode="circular"),
    ]
    net = convolutions_as_products(nn.Sequential(*others, nn.Conv2d(4, 4, 3)))
    assert [type(layer) for layer in net] == [nn.Conv2d] * 4 + [ConvAsMatmul]
    assert not any(isinstance(layer, ConvAsMatmul) for layer in others)
