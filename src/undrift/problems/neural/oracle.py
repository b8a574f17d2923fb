"""Gradients of a cohort's networks."""

from __future__ import annotations

import dataclasses
import warnings
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.func import grad, vmap

from undrift.core.problem import Oracle
from undrift.data.augment import Draws
from undrift.models.arrangement import arrangement
from undrift.models.conv_as_matmul import convolutions_as_products
from undrift.models.dropout import SLICE
from undrift.objectives.base import Batch, Objective, Others
from undrift.problems.neural.cuda_graph import Captured, Form, capture
from undrift.problems.neural.input import Samples
from undrift.problems.neural.mlp_gradient import MLPGradient, View
from undrift.problems.neural.network import FlatNetwork

if TYPE_CHECKING:
    from undrift.data.augment import Pipeline

PASS = 512
"""Samples per pass where a gradient is over all of a client's."""
CPU = torch.device("cpu")
Precision = Literal["f32", "tf32", "bf16"]


@dataclasses.dataclass
class Placed:
    """A network, its samples and its loss, in the precision and on the device of a run."""

    network: FlatNetwork
    samples: Samples
    objective: Objective
    pipeline: Pipeline | None
    mlp: MLPGradient | None
    """The gradient by formula, where the network and the loss have one."""
    stacked: bool
    """Whether the cohort's networks run as one."""
    precision: Precision
    compiled: bool
    dtype: torch.dtype = torch.float32
    device: torch.device = CPU
    captured: dict[tuple[int, ...], Captured | None] = dataclasses.field(default_factory=dict)
    """CUDA graphs by the shape of a mini-batch; ``None`` where that could not be captured."""

    def to(self, dtype: torch.dtype, device: torch.device) -> Placed:
        """Elsewhere; on a GPU the products of the whole process follow its ``precision``.

        torch has one switch per process, so the problem that was placed last decides.
        """
        if device.type == "cuda":
            short = self.precision != "f32"
            torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = short
        return dataclasses.replace(
            self,
            network=self.network.to(dtype, device),
            samples=self.samples.to(device),
            dtype=dtype,
            device=device,
            captured={},
        )

    def prepare(self, images: Tensor, draws: Draws[Tensor] | None = None) -> Tensor:
        """Samples as the network sees them: whole numbers other than uint8 stay as they are."""
        if images.dtype != torch.uint8:
            x = images.to(self.dtype) if images.is_floating_point() else images
        elif self.pipeline is None:
            x = images.to(self.dtype).mul_(1 / 255)  # a division takes three times as long
        elif draws is None:
            x = self.pipeline.normalise(images, self.dtype)
        else:
            x = self.pipeline(images, draws, self.dtype)
        return self.network.arranged(x)

    def few(self) -> Tensor:
        """Two samples, for a trial."""
        return self.prepare(self.samples.x[:2].clone())

    def release(self) -> None:
        """Free the CUDA graphs."""
        for captured in self.captured.values():
            if captured is not None:
                captured.release()
        self.captured.clear()


class Inputs(NamedTuple):
    """What decides a gradient besides the weights; each has a row per client."""

    samples: Tensor
    """Positions among all samples, ``[C, B]``."""
    weights: Tensor
    """How much each sample counts, ``[C, B]``."""
    offsets: Tensor | None
    flips: Tensor | None
    angles: Tensor | None
    """What the augmentation drew, for C * B samples."""
    start: Tensor | None
    previous: Tensor | None
    """The models that the loss compares with, ``[C, d]``."""
    label_counts: Tensor | None
    key: Tensor | None
    """Decides what is dropped, ``[C]``."""


class Arguments(NamedTuple):
    """What :meth:`NeuralOracle.loss` takes besides the weights; for a cohort, a row per client."""

    x: Tensor
    labels: Tensor
    weights: Tensor
    start: Tensor | None = None
    previous: Tensor | None = None
    label_counts: Tensor | None = None
    key: Tensor | None = None

    def row(self, client: int) -> Arguments:
        """Those of one client."""
        return Arguments(*(None if a is None else a[client] for a in self))  # type: ignore[arg-type]


class NeuralOracle(Oracle):
    """Gradients for all clients at once or one after another."""

    def __init__(self, placed: Placed, parts: Sequence[np.ndarray], label_counts: Tensor | None):
        self.placed, self.net = placed, placed.network.own(training=True)
        self.counts = [len(part) for part in parts]
        rows = [torch.from_numpy(part) for part in parts]
        self.rows = nn.utils.rnn.pad_sequence(rows, batch_first=True).to(placed.device)
        self.needs = placed.objective.needs
        self.label_counts = label_counts
        self.start: Tensor | None = None
        self.previous: Tensor | None = None
        self._views: tuple[Tensor, list[View]] | None = None

    def begin(self, start: Tensor, previous: Tensor | None) -> None:
        self.start = start.detach() if "global" in self.needs else None
        self.previous = None if previous is None else previous.detach()

    def grad(
        self,
        y: Tensor,
        batch: Tensor | None = None,
        draws: Draws[Tensor] | None = None,
        key: Tensor | None = None,
    ) -> Tensor:
        given = {"global": self.start, "previous": self.previous}
        if any(need in self.needs and model is None for need, model in given.items()):
            name = type(self.placed.objective).__name__
            raise RuntimeError(
                f"{name} compares the local model with others; give them to begin() first"
            )
        if batch is None:
            keys = [None] * len(y) if key is None else list(key)
            return torch.stack([self._full(c, y[c], keys[c]) for c in range(len(y))])
        inputs = self._inputs(y, batch, draws, key)
        if self.placed.device.type == "cuda" and (captured := self._capture(y, inputs)):
            return captured(y, inputs)
        return self._gradients(y, self._arguments(inputs))

    def recorded(self, y: Tensor, batch: Tensor | None = None, *drawn: Any) -> Captured | None:
        placed = self.placed
        if batch is None or placed.device.type != "cuda" or not placed.compiled:
            return None
        inputs = self._inputs(y, batch, *drawn)
        if captured := self._capture(y, inputs):
            captured.load(inputs)
        return captured

    def step_(self, y: Tensor, lr: float, *batch: Any) -> Tensor:
        mlp = self.placed.mlp
        if mlp is None or not batch or self.placed.device.type != "cpu":
            return super().step_(y, lr, *batch)
        if self._views is None or self._views[0] is not y:
            self._views = y, mlp.views(y)
        given = self._arguments(self._inputs(y, *batch))
        mlp.step_(self._views[1], lr, given.x, given.labels, given.weights)
        return y

    def loss(
        self,
        y: Tensor | Mapping[str, Tensor],
        x: Tensor,
        labels: Tensor,
        weights: Tensor,
        start: Tensor | None = None,
        previous: Tensor | None = None,
        label_counts: Tensor | None = None,
        key: Tensor | None = None,
        *,
        net: nn.Module | None = None,
    ) -> Tensor:
        """One client's loss as a function of its weights, a vector or by name; the other models
        drop nothing.
        """
        network, net = self.placed.network, self.net if net is None else net
        received, before = (None if v is None else network.bound(v, net) for v in (start, previous))
        others = Others(received, before, label_counts)
        local = network.bound(y, net, key)
        return self.placed.objective.loss(local, Batch(x, labels, weights), others)

    def stacked_gradients(self, y: Tensor, given: Arguments) -> Tensor:
        """The clients' networks as one."""
        dims = (0, *(None if a is None else 0 for a in given))
        found: Tensor = vmap(grad(self.loss), in_dims=dims, randomness="error")(y, *given)
        return found

    def takes_vmap(self) -> bool:
        """False where torch would run one network after another anyway, and warn of that."""
        y = self.placed.network.start.to(self.placed.dtype).repeat(len(self.counts), 1)
        batch = torch.zeros(len(y), 1, dtype=torch.int64)
        self.begin(y, y)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            try:
                self.stacked_gradients(y, self._arguments(self._inputs(y, batch, key=batch[:, 0])))
            except Exception:  # a user's module may fail in any way
                return False
        return not any("batching rule" in str(warning.message) for warning in caught)

    def _inputs(
        self,
        y: Tensor,
        batch: Tensor,
        draws: Draws[Tensor] | None = None,
        key: Tensor | None = None,
    ) -> Inputs:
        samples = self.rows.gather(1, batch.clamp(min=0))
        weights = (batch >= 0).to(y.dtype)
        weights /= weights.sum(1, keepdim=True)
        crops, flips, angles = None, None, None
        if draws is not None:
            crops, flips, angles = draws.offsets, draws.flips, draws.angles
        others = self.start, self.previous, self.label_counts
        return Inputs(samples, weights, crops, flips, angles, *others, key)

    def _arguments(self, given: Inputs) -> Arguments:
        placed, draws = self.placed, None
        if given.offsets is not None and given.flips is not None and given.angles is not None:
            draws = Draws(given.offsets, given.flips, given.angles)
        shape, chosen = given.samples.shape, given.samples.reshape(-1)
        x = placed.prepare(placed.samples.x.index_select(0, chosen), draws)
        labels = placed.samples.y.index_select(0, chosen).view(shape)
        others = given.start, given.previous, given.label_counts, given.key
        return Arguments(x.reshape(*shape, *x.shape[1:]), labels, given.weights, *others)

    def _gradients(self, y: Tensor, given: Arguments) -> Tensor:
        if self.placed.mlp is not None:
            return self.placed.mlp.gradients(y, given.x, given.labels, given.weights)
        if len(y) == 1:
            return self._one(y[0], given.row(0)).unsqueeze(0)
        if self.placed.stacked:
            return self.stacked_gradients(y, given)
        return torch.stack([self._one(y[c], given.row(c)) for c in range(len(y))])

    def _one(self, y: Tensor, given: Arguments) -> Tensor:
        given = given._replace(x=self.placed.network.arranged(given.x))
        with torch.enable_grad():
            leaf = y.detach().requires_grad_()
            return torch.autograd.grad(self.loss(leaf, *given), leaf)[0]

    def _full(self, client: int, y: Tensor, key: Tensor | None) -> Tensor:
        """Over all samples, none augmented; an objective compares samples within each pass only."""
        placed, n = self.placed, self.counts[client]
        row = slice(client, client + 1)
        start, previous, label_counts = (
            None if a is None else a[row] for a in (self.start, self.previous, self.label_counts)
        )
        total = torch.zeros_like(y)
        for k, samples in enumerate(torch.split(self.rows[client, :n], PASS)):
            x = placed.prepare(placed.samples.x.index_select(0, samples)).unsqueeze(0)
            labels = placed.samples.y[samples].unsqueeze(0)
            weights = y.new_full((1, len(samples)), 1 / len(samples))
            slice_key = None if key is None else (key + k * SLICE).unsqueeze(0)
            given = Arguments(x, labels, weights, start, previous, label_counts, slice_key)
            total += len(samples) / n * self._gradients(y.unsqueeze(0), given)[0]
        return total

    def _capture(self, y: Tensor, inputs: Inputs) -> Captured | None:
        """This gradient as a CUDA graph, recorded once for every shape of mini-batch."""
        placed = self.placed
        key = (*inputs.samples.shape, *(given is None for given in inputs))
        if key not in placed.captured:
            placed.captured[key] = capture(
                lambda *given: self._arguments(Inputs(*given)),
                {
                    "streams": self._form(self.net),
                    "stacked": self._form(convolutions_as_products(self.net)),
                },
                inputs,
                y,
                compiled=placed.compiled,
                autocast=torch.bfloat16 if placed.precision == "bf16" else None,
            )
        return placed.captured[key]

    def _form(self, net: nn.Module) -> Form:
        """The loss of ``net``, a copy of the network, its weights as its layers read them."""
        arranged = arrangement(net, self.placed.network.layout)

        def loss(matrices: Tensor, rest: Tensor, *given: Any) -> Tensor:
            return self.loss(arranged.named(matrices, rest), *given, net=net)

        return Form(loss, arranged)
