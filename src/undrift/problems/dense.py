"""Networks of linear layers with ReLU between them: gradients of the cross-entropy by formula, for many clients."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

import torch
from torch import Tensor, nn

from undrift.models.flat import Spec
from undrift.problems.layers import hooked, leaves


@dataclasses.dataclass(frozen=True)
class Layer:
    """A linear layer: which parameters are its weights and biases, and whether ReLU follows."""

    inner: int
    outer: int
    weight: int
    bias: int | None
    relu: bool = False


class Dense:
    """``layers`` of a network whose parameters have ``sizes`` in the vector."""

    def __init__(self, layers: list[Layer], sizes: tuple[int, ...]):
        self.layers, self.sizes = layers, sizes

    def gradients(self, y: Tensor, x: Tensor, labels: Tensor, weights: Tensor) -> Tensor:
        """Of sum_j w_j (-log softmax(s_j)_{label_j}) over the samples ``x [C, n, ...]`` of each client, ``[C, d]``."""
        g = torch.empty(y.shape, dtype=y.dtype, device=y.device)
        parts = g.split(self.sizes, 1)
        for layer, h, back in self._backwards(y.detach(), x, labels, weights):
            torch.bmm(back.mT, h, out=parts[layer.weight].view(-1, layer.outer, layer.inner))
            if layer.bias is not None:
                torch.sum(back, 1, out=parts[layer.bias])
        return g

    def step_(self, y: Tensor, lr: float, x: Tensor, labels: Tensor, weights: Tensor) -> Tensor:
        """``y - lr * gradients(y, ...)``, written over ``y``: a gradient is never laid down."""
        parts = y.split(self.sizes, 1)
        for layer, h, back in self._backwards(y, x, labels, lr * weights):
            parts[layer.weight].view(-1, layer.outer, layer.inner).baddbmm_(back.mT, h, alpha=-1)
            if layer.bias is not None:
                parts[layer.bias].sub_(back.sum(1))
        return y

    def _backwards(
        self, y: Tensor, x: Tensor, labels: Tensor, weights: Tensor
    ) -> Iterator[tuple[Layer, Tensor, Tensor]]:
        """The layers from the last to the first, each with its inputs and the derivative in its outputs."""
        parts = y.split(self.sizes, 1)
        inputs, matrices = [x.flatten(2)], []
        for layer in self.layers:
            matrices.append(w := parts[layer.weight].reshape(-1, layer.outer, layer.inner))
            z = torch.bmm(inputs[-1], w.mT)
            if layer.bias is not None:
                z += parts[layer.bias].unsqueeze(1)
            inputs.append(z.relu_() if layer.relu else z)
        share = weights.unsqueeze(-1)
        back = inputs.pop().mT.softmax(1).mT  # several times faster than along the last axis, where classes are few
        back.mul_(share).scatter_add_(-1, labels.unsqueeze(-1), -share)
        for k, layer in reversed(list(enumerate(self.layers))):
            here = back
            if k:
                back = torch.bmm(back, matrices[k])
                if self.layers[k - 1].relu:
                    back = torch.ops.aten.threshold_backward(back, inputs[k], 0)
            yield layer, inputs[k], here


def dense(net: nn.Module, spec: Spec) -> Dense | None:
    """A network in evaluation mode, where it is of this kind."""
    places = {name: k for k, name in enumerate(spec.names)}
    found: list[Layer] = []
    flat = False
    for name, module in leaves(net):
        kind = type(module)
        if kind is nn.Flatten and (module.start_dim, module.end_dim) == (1, -1):
            flat = True
        elif isinstance(module, nn.Linear) and kind is nn.Linear and flat and f"{name}weight" in places:
            bias = None if module.bias is None else places.get(f"{name}bias", -1)
            found.append(Layer(module.in_features, module.out_features, places[f"{name}weight"], bias))
        elif kind is nn.ReLU and found:
            found[-1] = dataclasses.replace(found[-1], relu=True)
        elif kind not in (nn.Identity, nn.Dropout):
            return None
    used = [k for layer in found for k in (layer.weight, layer.bias) if k is not None]
    if not found or found[-1].relu or hooked(net) or sorted(used) != list(range(len(spec.names))):
        return None
    return Dense(found, spec.sizes)
