"""Batch normalisation, whose statistics clients do not share: refused, replaced or frozen."""

from __future__ import annotations

import copy

from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.instancenorm import _InstanceNorm

from undrift.models.net import where


class FrozenBatchNorm(_BatchNorm):
    """Normalises by the statistics that it was given, in training too; weights and biases train."""

    def forward(self, input: Tensor) -> Tensor:
        mean, variance = self.running_mean, self.running_var
        assert mean is not None and variance is not None  # freeze_batch_norm has seen to it
        scale = (variance + self.eps).rsqrt()
        scale = scale if self.weight is None else scale * self.weight
        shift = -mean * scale if self.bias is None else self.bias - mean * scale
        shape = (1, -1, *[1] * (input.dim() - 2))
        return input * scale.view(shape) + shift.view(shape)


def to_group_norm(net: nn.Module, groups: int = 32) -> nn.Module:
    """A copy of ``net`` with group normalisation in the place of batch normalisation.

    Weights and biases are kept. A layer has up to ``groups`` groups, of equal size and, unless it
    has a single channel, of two channels or more.

    >>> to_group_norm(nn.Sequential(nn.Conv2d(3, 12, 3), nn.BatchNorm2d(12)), groups=8)[1]
    GroupNorm(6, 12, eps=1e-05, affine=True)
    """
    if groups < 1:
        raise ValueError(f"groups = {groups} is not allowed: whole number >= 1")
    made = nn.Sequential(copy.deepcopy(net))  # the net itself may be such a layer
    for name, layer in list(made.named_modules(remove_duplicate=False)):
        if isinstance(layer, _BatchNorm):
            parent, _, own = name.rpartition(".")
            setattr(made.get_submodule(parent), own, _as_group_norm(layer, groups))
    return made[0]


def freeze_batch_norm(net: nn.Module) -> nn.Module:
    """A copy of ``net`` whose batch normalisation always uses the statistics that it has now.

    For networks that were trained before. The names in its ``state_dict`` stay the same.
    """
    made = copy.deepcopy(net)
    for name, layer in made.named_modules():
        if isinstance(layer, _BatchNorm):
            if not layer.track_running_stats or layer.running_mean is None:
                raise ValueError(
                    f"the {where(name, layer)} keeps no statistics that could be frozen; "
                    "use undrift.models.to_group_norm(net)"
                )
            layer.__class__ = FrozenBatchNorm
    return made


def refuse_batch_statistics(module: nn.Module) -> None:
    """Refuse layers whose output or state depends on the other samples of a batch."""
    for name, layer in module.named_modules():
        tracks = isinstance(layer, _InstanceNorm) and layer.track_running_stats
        if tracks or (isinstance(layer, _BatchNorm) and not isinstance(layer, FrozenBatchNorm)):
            raise ValueError(
                f"the {where(name, layer)} has statistics of its batches, which clients with "
                "different data do not share; use undrift.models.to_group_norm(net), "
                "freeze_batch_norm(net) to keep those of a trained network, or instance norms "
                "without track_running_stats"
            )


def _as_group_norm(layer: _BatchNorm, groups: int) -> nn.GroupNorm:
    channels = layer.num_features
    most = min(groups, max(channels // 2, 1))
    count = next(n for n in range(most, 0, -1) if channels % n == 0)
    made = nn.GroupNorm(count, channels, eps=layer.eps, affine=layer.affine)
    made.weight, made.bias = layer.weight, layer.bias
    return made.train(layer.training)
