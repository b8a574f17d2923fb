"""Group norms that add, and rectify, what they normalise."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from undrift.models import build
from undrift.models.architectures import BasicBlock
from undrift.models.group_norm import (
    TRITON,
    FusedBasicBlock,
    FusedGroupNorm,
    FusedSequential,
    group_norms_fused,
)

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
SHAPES = [(64, 8, 2), (48, 7, 2), (30, 5, 3), (6, 5, 1)]
if DEVICE == "cuda":
    SHAPES += [(64, 32, 2), (128, 16, 2), (256, 8, 2), (512, 4, 2)]


@pytest.fixture
def kernels():
    """Without a GPU they run in Triton's interpreter, if that is asked for."""
    if not TRITON:
        pytest.skip("Triton is not installed")
    if DEVICE == "cpu" and os.environ.get("TRITON_INTERPRET") != "1":
        pytest.skip("needs a GPU, or TRITON_INTERPRET=1")
    from undrift.models import group_norm_kernels

    return group_norm_kernels


def images(n: int, channels: int, size: int, dtype: torch.dtype = torch.bfloat16) -> Tensor:
    x = torch.randn(n, channels, size, size, device=DEVICE).to(dtype)
    return x.contiguous(memory_format=torch.channels_last)


def norm(channels: int, groups: int) -> FusedGroupNorm:
    layer = FusedGroupNorm(groups, channels).to(DEVICE)
    nn.init.normal_(layer.weight)
    nn.init.normal_(layer.bias)
    return layer


def away_from_the_kink(residual: Tensor, x: Tensor, layer: FusedGroupNorm) -> Tensor:
    """What is added, changed where the ReLU's argument is so near zero that rounding decides."""
    v = F.group_norm(x.double(), layer.num_groups, layer.weight.double(), layer.bias.double())
    near = (v + residual.double()).abs() < 1e-3
    return torch.where(near, residual + 1, residual).detach()


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
@pytest.mark.parametrize("kind", ["norm", "relu", "residual"])
@pytest.mark.parametrize("held", [True, False])
@pytest.mark.parametrize(("channels", "size", "groups"), SHAPES)
def test_kernels_are_torchs_in_double_precision(
    kernels, monkeypatch, channels, size, groups, held, kind, dtype
):
    if not held:
        monkeypatch.setattr(kernels, "HELD", 0)
        monkeypatch.setattr(kernels, "BLOCK", 1024 if DEVICE == "cuda" else 256)
    torch.manual_seed(0)
    x, slope = 2 * images(2, channels, size, dtype) + 1, images(2, channels, size, dtype)
    layer = norm(channels, groups)
    leaves = [x.requires_grad_(), *layer.parameters()]
    if kind == "residual":
        added = away_from_the_kink(images(2, channels, size, dtype), x, layer)
        leaves.append(added.requires_grad_())
    else:
        near = away_from_the_kink(torch.zeros_like(x), x, layer)
        slope = torch.where(near > 0, 0, slope)
    right = [leaf.detach().double().requires_grad_() for leaf in leaves]
    expected = sum(right[3:], F.group_norm(right[0], groups, *right[1:3]))
    expected = expected if kind == "norm" else expected.relu()
    found = layer(x, *leaves[3:], relu=kind != "norm")
    assert found.dtype == dtype
    assert found.is_contiguous(memory_format=torch.channels_last)
    slopes = torch.autograd.grad(found, leaves, slope)
    others = torch.autograd.grad(expected, right, slope.double())
    rounded = [6e-3, 6e-3, 1e-5, 1e-5, 1e-9]  # in bf16 are all but the slopes of the parameters
    if dtype == torch.float32:
        rounded = [1e-6, 1e-5, 1e-5, 1e-5, 1e-9]
    pairs = zip((found, *slopes), (expected, *others), rounded, strict=False)
    for mine, theirs, tolerance in pairs:
        assert (mine.double() - theirs).norm() <= tolerance * theirs.norm()


def test_something_may_be_added_without_a_relu(kernels):
    torch.manual_seed(0)
    x, added, slope = (images(2, 16, 4).requires_grad_() for _ in range(3))
    layer = norm(16, 2)
    found = layer(x, added)
    expected = F.group_norm(x.double(), 2, layer.weight.double(), layer.bias.double()) + added
    assert (found.double() - expected).norm() <= 6e-3 * expected.norm()
    assert torch.equal(torch.autograd.grad(found, added, slope)[0], slope)


def test_large_means_do_not_cancel(kernels, monkeypatch):
    monkeypatch.setattr(kernels, "HELD", 0)
    monkeypatch.setattr(kernels, "BLOCK", 256)
    torch.manual_seed(0)
    x = images(2, 16, 16) + 200
    layer = norm(16, 2)
    expected = F.group_norm(x.double(), 2, layer.weight.double(), layer.bias.double())
    assert (layer(x).double() - expected).norm() <= 6e-3 * expected.norm()


@pytest.mark.parametrize("held", [True, False])
def test_a_relu_keeps_what_is_no_number(kernels, monkeypatch, held):
    if not held:
        monkeypatch.setattr(kernels, "HELD", 0)
        monkeypatch.setattr(kernels, "BLOCK", 64)
    x = images(2, 16, 4)
    x[0, 3, 1, 2] = float("nan")
    found = norm(16, 2)(x, relu=True)
    assert bool(found[0, :8].isnan().all()) and bool(found[0, 8:].isfinite().all())


def test_a_network_in_bf16_is_as_near_to_single_precision_as_torchs(kernels):
    torch.manual_seed(0)
    first = [nn.Conv2d(3, 16, 3, padding=1), nn.GroupNorm(2, 16), nn.ReLU()]
    blocks = [BasicBlock(16, 32, 2, 2), BasicBlock(32, 32, 1, 4)]
    net = nn.Sequential(*first, *blocks).to(DEVICE)
    x = torch.randn(4, 3, 8, 8, device=DEVICE)

    def gradient(net: nn.Module, short: bool = True) -> Tensor:
        with torch.autocast(DEVICE, torch.bfloat16, enabled=short):
            value = net(x).float().square().sum()
        return torch.cat([g.flatten() for g in torch.autograd.grad(value, list(net.parameters()))])

    fused, right = group_norms_fused(net), gradient(net, short=False)
    assert fused is not None
    mine, theirs = ((gradient(one) - right).norm() / right.norm() for one in (fused, net))
    assert 0 < mine <= 1.5 * theirs <= 0.1


def test_in_double_precision_the_network_is_as_it_was():
    torch.manual_seed(0)
    net, x = build("resnet18-3x3", 3, 8, 10).double(), torch.randn(2, 3, 8, 8).double()
    fused = group_norms_fused(net)
    assert fused is not None
    assert torch.equal(fused(x), net(x))
    kinds = [type(layer) for layer in fused.modules()]
    assert kinds.count(FusedGroupNorm) == 20
    assert kinds.count(FusedBasicBlock) == 8
    assert nn.GroupNorm not in kinds
    assert not any(isinstance(layer, FusedGroupNorm) for layer in net.modules())
    assert [n for n, _ in fused.named_parameters()] == [n for n, _ in net.named_parameters()]


def test_a_relu_is_done_by_the_norm_before_it(monkeypatch):
    asked = []

    def forward(self, x, residual=None, relu=False):
        asked.append(relu)
        return nn.GroupNorm.forward(self, x).relu() if relu else nn.GroupNorm.forward(self, x)

    monkeypatch.setattr(FusedGroupNorm, "forward", forward)
    layers = [nn.GroupNorm(2, 8), nn.ReLU(), nn.GroupNorm(2, 8), nn.Tanh(), nn.ReLU()]
    net, x = nn.Sequential(*layers, nn.GroupNorm(4, 8)), torch.randn(2, 8, 4, 4)
    fused = group_norms_fused(net)
    assert torch.equal(fused(x), net(x))
    assert asked == [True, False, False]


class Reading(nn.Module):
    """One norm in two places, and a look inside a sequence."""

    def __init__(self):
        super().__init__()
        self.norm = nn.GroupNorm(2, 8)
        self.layers = nn.Sequential(self.norm, nn.ReLU(), self.norm)

    def forward(self, x):
        return self.layers(x) + self.layers[0](x) + self.layers[:2](x)


def test_layers_called_by_themselves_give_what_they_gave():
    torch.manual_seed(0)
    net, x = Reading().double(), torch.randn(2, 8, 4, 4).double()
    fused = group_norms_fused(net)
    assert type(fused.layers) is FusedSequential
    assert torch.equal(fused(x), net(x))


def test_a_network_without_such_norms_stays():
    assert group_norms_fused(nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU())) is None
    assert group_norms_fused(nn.Sequential(nn.GroupNorm(2, 8, affine=False), nn.ReLU())) is None


def test_a_network_with_hooks_stays():
    net = nn.Sequential(nn.GroupNorm(2, 8), nn.ReLU())
    net[0].register_forward_hook(lambda layer, given, out: out)
    assert group_norms_fused(net) is None


def test_fusing_alone_imports_no_triton():
    code = (
        "import sys, undrift.models.group_norm as g; from undrift.models import build; "
        "g.group_norms_fused(build('resnet18', 3, 32, 10)); "
        "print('undrift.models.group_norm_kernels' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False"]
