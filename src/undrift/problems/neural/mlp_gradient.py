"""Linear layers with ReLU between: their gradient by formula, for many clients at once."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator

import torch
from torch import Tensor, nn

from undrift.models.layout import Layout
from undrift.models.net import hooked, leaves
from undrift.problems.neural.data import Fields
from undrift.problems.small_matmul import times_transposed

Slope = Callable[[Tensor, Fields, Tensor], Tensor]
"""The derivative of each client's loss in its outputs ``[C, n, k]``, given the targets and how much
each sample counts ``[C, n]``."""


ROOM = 1 << 21
"""Numbers of inputs that are laid out at once."""


@dataclasses.dataclass(frozen=True)
class Layer:
    """A linear layer: which parameters are its weights and biases, and whether ReLU follows."""

    inner: int
    outer: int
    weight: int
    bias: int | None
    relu: bool = False


View = tuple[Tensor, Tensor | None]


class MLPGradient:
    """``layers`` of a network whose parameters have ``sizes`` in the vector."""

    def __init__(self, layers: list[Layer], sizes: tuple[int, ...]):
        self.layers, self.sizes = layers, sizes

    @classmethod
    def of(cls, net: nn.Module, layout: Layout, flat: bool = False) -> MLPGradient | None:
        """For ``net``, if it is such a network; ``flat`` says that a sample is a vector."""
        places = {name: k for k, name in enumerate(layout.names)}
        found: list[Layer] = []
        for name, module in leaves(net):
            kind = type(module)
            if isinstance(module, nn.Flatten) and kind is nn.Flatten:
                if (module.start_dim, module.end_dim) != (1, -1):
                    return None
                flat = True
            elif isinstance(module, nn.Linear) and kind is nn.Linear:
                if not flat or f"{name}weight" not in places:
                    return None
                bias = None if module.bias is None else places.get(f"{name}bias", -1)
                weight = places[f"{name}weight"]
                found.append(Layer(module.in_features, module.out_features, weight, bias))
            elif kind is nn.ReLU and found:
                found[-1] = dataclasses.replace(found[-1], relu=True)
            elif kind is not nn.Identity:
                return None
        used = [k for layer in found for k in (layer.weight, layer.bias) if k is not None]
        every = sorted(used) == list(range(len(layout.names)))
        if not found or found[-1].relu or hooked(net) or not every:
            return None
        return cls(found, layout.sizes)

    def gradients(
        self, y: Tensor, x: Tensor, targets: Fields, weights: Tensor, slope: Slope
    ) -> Tensor:
        """Of the loss that has this ``slope``, over samples ``x [C, n, ...]``: ``[C, d]``."""
        g = torch.empty(y.shape, dtype=y.dtype, device=y.device)
        slopes = self.views(g)
        for k, h, back in self._backwards(self.views(y.detach()), x, targets, weights, slope):
            weight, bias = slopes[k]
            torch.bmm(back.mT, h, out=weight)
            if bias is not None:
                torch.sum(back, 1, keepdim=True, out=bias)
        return g

    def step_(
        self,
        views: list[View],
        lr: float | Tensor,
        x: Tensor,
        targets: Fields,
        weights: Tensor,
        slope: Slope,
    ) -> None:
        """``y - lr * gradients(y, ...)``, written over the y of these ``views``.

        The gradient is never stored; the slope must be proportional to the weights.
        """
        for k, h, back in self._backwards(views, x, targets, lr * weights, slope):
            weight, bias = views[k]
            weight.baddbmm_(back.mT, h, alpha=-1)
            if bias is not None:
                bias.sub_(back.sum(1, keepdim=True))

    def ahead(self, samples: int) -> int:
        """Steps of so many samples each that are worth laying out beside another one."""
        return ROOM // (samples * self.layers[0].inner)

    def views(self, y: Tensor) -> list[View]:
        """The layers' weights ``[C, outer, inner]`` and biases ``[C, 1, outer]`` within ``y``."""
        parts = y.split_with_sizes(self.sizes, 1)
        return [
            (
                parts[layer.weight].view(-1, layer.outer, layer.inner),
                None if layer.bias is None else parts[layer.bias].unsqueeze(1),
            )
            for layer in self.layers
        ]

    def _backwards(
        self, views: list[View], x: Tensor, targets: Fields, weights: Tensor, slope: Slope
    ) -> Iterator[tuple[int, Tensor, Tensor]]:
        """Layers from last to first, each with its inputs and the derivative in its outputs."""
        inputs = [x.flatten(2)]
        for layer, (weight, bias) in zip(self.layers, views, strict=True):
            z = times_transposed(inputs[-1], weight)
            if bias is not None:
                z += bias
            inputs.append(z.relu_() if layer.relu else z)
        back = slope(inputs.pop(), targets, weights)
        for k in range(len(views) - 1, -1, -1):
            here = back
            if k:
                back = torch.bmm(back, views[k][0])
                if self.layers[k - 1].relu:
                    back = torch.ops.aten.threshold_backward(back, inputs[k], 0)
            yield k, inputs[k], here


def slope_of_cross_entropy(logits: Tensor, labels: Fields, weights: Tensor) -> Tensor:
    """Of sum_j w_j (-log softmax(s_j)_{label_j})."""
    assert isinstance(labels, Tensor)
    share = weights.unsqueeze(-1)
    # Several times faster than along the last axis, where classes are few.
    slope = logits.mT.softmax(1).mT
    return slope.mul_(share).scatter_add_(-1, labels.unsqueeze(-1), -share)
