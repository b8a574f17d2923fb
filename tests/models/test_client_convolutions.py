"""Convolutions of many clients by one kernel, which gathers what it multiplies."""

from __future__ import annotations

import os
from types import SimpleNamespace

import pytest
import torch
from torch import Tensor, nn
from torch.func import functional_call, vmap
from torch.nn import functional as F

from undrift.models import client_convolutions
from undrift.models.architectures import BasicBlock
from undrift.models.client_convolutions import ConvOfClients, convolutions_of_clients
from undrift.models.convolutions import convolutions_as_products
from undrift.models.group_norm import TRITON, group_norms_fused
from undrift.models.net import seeded

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
SHORT = torch.bfloat16 if DEVICE == "cuda" else torch.float16
"""The interpreter multiplies no bf16."""
CLIENTS, EACH = 3, 2
SHAPES = [
    # inputs, outputs, height, width, kernel, stride, padding
    (16, 32, 6, 5, (3, 3), 1, (1, 1)),
    (32, 16, 7, 6, (3, 3), 2, (1, 1)),
    (32, 48, 5, 6, (1, 1), 2, (0, 0)),
    (16, 16, 7, 7, (5, 5), 3, (2, 2)),
    (16, 16, 5, 5, (3, 2), 1, (0, 1)),
    (48, 16, 2, 1, (3, 3), 1, (1, 1)),
    (16, 32, 1, 1, (3, 3), 2, (1, 1)),
]
if DEVICE == "cuda":
    SHAPES += [
        (64, 64, 32, 32, (3, 3), 1, (1, 1)),
        (64, 128, 32, 32, (3, 3), 2, (1, 1)),
        (256, 512, 8, 8, (3, 3), 2, (1, 1)),
        (512, 512, 4, 4, (3, 3), 1, (1, 1)),
        (256, 512, 8, 8, (1, 1), 2, (0, 0)),
    ]


@pytest.fixture(autouse=True)
def kernels():
    """Without a GPU they run in Triton's interpreter, if that is asked for."""
    if not TRITON:
        pytest.skip("Triton is not installed")
    if DEVICE == "cpu" and os.environ.get("TRITON_INTERPRET") != "1":
        pytest.skip("needs a GPU, or TRITON_INTERPRET=1")
    from undrift.models import convolution_kernels

    return convolution_kernels


def near(found: Tensor, expected: Tensor) -> bool:
    """Up to the rounding of a result; sums are in float32."""
    return bool((found.double() - expected).norm() <= 5e-3 * expected.norm())


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("each", [EACH, 40])
def test_they_are_convolutions_with_their_slopes(shape, each):
    inputs, outputs, height, width, kernel, stride, padding = shape
    if each > EACH and DEVICE == "cpu":
        pytest.skip("more samples than the interpreter takes in a second")
    with seeded(0):
        layer = nn.Conv2d(inputs, outputs, kernel, stride, padding).to(DEVICE, torch.float64)
        x = torch.randn(CLIENTS, each, inputs, height, width).to(DEVICE, SHORT)
        weight = torch.randn(CLIENTS, *layer.weight.shape).to(DEVICE, SHORT)
        bias = torch.randn(CLIENTS, outputs).to(DEVICE, SHORT)
    (own,) = convolutions_of_clients(nn.Sequential(products(layer))) or ()
    assert type(own) is ConvOfClients
    given = [v.requires_grad_() for v in (x, weight, bias)]

    def one(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        return functional_call(own, {"weight": weight, "bias": bias}, (x,))

    found = vmap(one)(*given)
    exact = [v.detach().double().requires_grad_() for v in given]
    expected = torch.stack(
        [F.conv2d(a, w, b, stride, padding) for a, w, b in zip(*exact, strict=True)]
    )
    with seeded(1):
        slope = torch.randn(expected.shape).to(DEVICE, SHORT)
    assert near(found, expected)
    slopes = torch.autograd.grad(found, given, slope)
    for a, b in zip(slopes, torch.autograd.grad(expected, exact, slope.double()), strict=True):
        assert near(a, b)
    for c in range(CLIENTS):
        assert torch.equal(one(*(v[c] for v in given)), found[c])


def products(layer: nn.Conv2d) -> nn.Module:
    """The layer as a product; the first of a network would stay one."""
    (_, found) = convolutions_as_products(nn.Sequential(nn.Conv2d(3, 3, 1), layer))
    return found


def test_weights_that_are_parts_of_vectors_are_not_copied(kernels, monkeypatch):
    seen = []
    right = kernels.forward
    monkeypatch.setattr(
        kernels, "forward", lambda x, weight, *rest: seen.append(weight) or right(x, weight, *rest)
    )
    own = convolutions_of_clients(nn.Sequential(products(nn.Conv2d(16, 16, 3, padding=1))))
    vectors = torch.randn(CLIENTS, 5000, device=DEVICE).to(SHORT)
    weight = vectors[:, 100 : 100 + 9 * 256].view(CLIENTS, 3, 3, 16, 16).permute(0, 4, 3, 1, 2)
    zero = torch.zeros(16, device=DEVICE, dtype=SHORT)
    x = torch.randn(CLIENTS, EACH, 16, 4, 4, device=DEVICE).to(SHORT)
    vmap(lambda x, w: functional_call(own, {"0.weight": w, "0.bias": zero}, (x,)))(x, weight)
    (given,) = seen
    assert given.data_ptr() == weight.data_ptr() and given.stride(0) == 5000


def test_a_network_of_many_clients_has_the_gradients_of_each():
    with seeded(0):
        first = [nn.Conv2d(3, 16, 3, padding=1, bias=False), nn.GroupNorm(2, 16), nn.ReLU()]
        blocks = [BasicBlock(16, 32, 2, 2), BasicBlock(32, 32, 1, 4)]
        last = [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(32, 5)]
        net = nn.Sequential(*first, *blocks, *last).to(DEVICE)
        x = torch.randn(CLIENTS, EACH, 3, 6, 6).to(DEVICE)
        y = torch.randint(0, 5, (CLIENTS, EACH)).to(DEVICE)
        params = {
            name: torch.stack([p + 0.1 * torch.randn(p.shape).to(DEVICE) for _ in range(CLIENTS)])
            for name, p in net.named_parameters()
        }
    own = convolutions_of_clients(group_norms_fused(convolutions_as_products(net)))
    assert sum(type(m) is ConvOfClients for m in own.modules()) == 5
    short = {name for name, m in own.named_modules() if type(m) is ConvOfClients}

    def loss(net, params, x, y, lower=False):
        low = {
            name: p.half() if lower and name.removesuffix(".weight") in short else p
            for name, p in params.items()
        }
        return F.cross_entropy(functional_call(net, low, (x,)).float(), y)

    leaves = {name: p.clone().requires_grad_() for name, p in params.items()}
    with torch.autocast(DEVICE, torch.float16):
        value = vmap(lambda p, x, y: loss(own, p, x, y, lower=True))(leaves, x, y).sum()
    found = torch.autograd.grad(value, list(leaves.values()))
    for c in range(CLIENTS):
        of_one = {name: p[c].clone().requires_grad_() for name, p in params.items()}
        expected = torch.autograd.grad(loss(net, of_one, x[c], y[c]), list(of_one.values()))
        error = sum(float((f[c] - e).square().sum()) for f, e in zip(found, expected, strict=True))
        size = sum(float(e.square().sum()) for e in expected)
        assert error <= 0.02**2 * size


def test_odd_channels_and_float32_are_left_to_products():
    layers = nn.Sequential(
        nn.Conv2d(3, 16, 1), nn.Conv2d(16, 24, 1), nn.Conv2d(24, 16, 1), nn.Conv2d(16, 16, 1)
    ).to(DEVICE)
    stay = nn.Sequential(*list(layers)[:3])
    assert convolutions_of_clients(convolutions_as_products(stay)) is None
    net = convolutions_as_products(layers)
    own = convolutions_of_clients(net)
    x = torch.randn(2, 3, 4, 4, device=DEVICE)
    assert type(own[3]) is ConvOfClients and torch.equal(own(x), net(x))


def test_products_under_way_fit_the_memory_of_the_card(kernels, monkeypatch):
    card = {"max_shared_mem": 99 * 1024}
    utils = SimpleNamespace(get_device_properties=lambda device: card)
    active = SimpleNamespace(utils=utils)
    monkeypatch.setattr(kernels.triton.runtime, "driver", SimpleNamespace(active=active))
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 0)
    assert kernels._stages(3, 128, 256) == 2 and kernels._stages(4, 64, 128) == 4
    card["max_shared_mem"] = 1024
    assert kernels._stages(3, 128, 256) == 1


def test_what_a_kernel_cannot_count_is_left_to_products(monkeypatch):
    monkeypatch.setattr(client_convolutions, "LONGEST", 2 * 32 * 4 * 4)
    monkeypatch.setattr(client_convolutions, "_convolved", None)
    (own,) = convolutions_of_clients(nn.Sequential(products(nn.Conv2d(16, 32, 1)))) or ()
    x = torch.randn(2, 16, 4, 4, device=DEVICE, dtype=SHORT)
    own = own.to(DEVICE, SHORT)
    assert near(own(x), F.conv2d(x.double(), own.weight.double(), own.bias.double()))
