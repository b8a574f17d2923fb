"""Neural networks: any module without batch statistics, on image sets, with any local objective."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import torch
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap

from undrift.core.problem import Oracle, Problem
from undrift.models.flat import Spec, flatten, unflatten
from undrift.models.net import Net, refuse_batch_statistics
from undrift.objectives import Batch, CrossEntropy, Objective, Others

if TYPE_CHECKING:
    from undrift.data.augment import Draws, Pipeline
    from undrift.data.images import ImageSet

PASS = 512
"""Samples per forward pass where a gradient or a metric is over all of them."""


class Neural(Problem):
    """f_i is the mean loss of a network on client i's samples.

    ``parts`` are the clients' sample numbers (a sample may occur twice). ``pipeline`` normalises, and augments training
    samples of mini-batches; without it images are scaled to [0, 1]. ``stacked`` runs the cohort's networks as one
    (``torch.func.vmap``), else one after another: by default stacked on a GPU and for networks without convolutions.
    """

    differentiates = True

    def __init__(
        self,
        module: nn.Module,
        data: ImageSet,
        parts: Sequence[np.ndarray],
        *,
        pipeline: Pipeline | None = None,
        objective: Objective | None = None,
        stacked: bool | None = None,
    ):
        refuse_batch_statistics(module)
        self.objective = CrossEntropy() if objective is None else objective
        if {"features", "blocks"} & set(self.objective.needs) and not isinstance(module, Net):
            raise ValueError(
                f"{type(self.objective).__name__} looks inside the network; make it an undrift.models.Net "
                "(trunk, pool and head), or use another objective"
            )
        self.net = copy.deepcopy(module).eval()
        vector, self.spec = flatten(self.net)
        self._init = vector.double()
        self.data, self.pipeline, self._stacked = data, pipeline, stacked
        self.augmentation = None if pipeline is None else pipeline.augmentation
        self.remembers = "previous" in self.objective.needs
        self.parts = [np.asarray(part, dtype=np.int64) for part in parts]
        self.clients, self.dim, self.samples = len(parts), self.spec.dim, [len(part) for part in parts]
        self.classes = len(data.classes)
        self._refuse()
        self._place(torch.float32, torch.device("cpu"))

    def start(self) -> Tensor:
        return self._init

    def to(self, dtype: torch.dtype, device: torch.device) -> Self:
        twin = copy.copy(self)
        twin._place(dtype, torch.device(device))
        return twin

    def at(self, members: np.ndarray | None = None) -> NeuralOracle:
        return NeuralOracle(self, np.arange(self.clients) if members is None else members)

    @torch.no_grad()
    def metrics(self, x: Tensor) -> dict[str, float]:
        """On the test samples: mean cross-entropy, and the shares classified right at once and among the best five."""
        weights, total = unflatten(x.detach(), self.spec), torch.zeros(3, dtype=torch.float64, device=self.device)
        for images, labels in zip(self._test_x.split(PASS), self._test_y.split(PASS), strict=True):
            logits = functional_call(self.net, weights, (self.prepare(images),))
            loss = nn.functional.cross_entropy(logits, labels, reduction="sum")
            best = logits.topk(min(5, self.classes), dim=-1).indices == labels.unsqueeze(-1)
            total += torch.stack([loss, best[:, 0].sum(), best.any(-1).sum()])
        loss, top1, top5 = (total / len(self._test_y)).tolist()
        return {"loss": loss, "accuracy": top1, "top5": top5}

    def prepare(self, images: Tensor, draws: Draws | None = None) -> Tensor:
        """uint8 images as the network sees them."""
        if self.pipeline is None:
            return images.to(self.dtype) / 255
        ready = self.pipeline.normalise(images) if draws is None else self.pipeline(images, draws)
        return ready.to(self.dtype)

    @property
    def stacked(self) -> bool:
        if self._stacked is not None:
            return self._stacked
        return self.device.type == "cuda" or not any(isinstance(m, nn.Conv2d) for m in self.net.modules())

    def label_counts(self, members: np.ndarray) -> Tensor:
        """``[C, classes]``"""
        labels = self.data.labels.numpy()
        counts = [np.bincount(labels[self.parts[i]], minlength=self.classes) for i in members]
        return torch.from_numpy(np.stack(counts)).to(self.device, self.dtype)

    def _place(self, dtype: torch.dtype, device: torch.device) -> None:
        self.dtype, self.device = dtype, device
        self._x, self._y = self.data.images.to(device), self.data.labels.to(device)
        self._test_x, self._test_y = self.data.test_images.to(device), self.data.test_labels.to(device)
        self._buffers_to(device)

    def _buffers_to(self, device: torch.device) -> None:
        """Weights always come with the call; only a module's buffers live with it."""
        self.net = copy.deepcopy(self.net).to(device) if any(True for _ in self.net.buffers()) else self.net

    def _refuse(self) -> None:
        if any(len(part) == 0 for part in self.parts):
            empty = next(i for i, part in enumerate(self.parts) if len(part) == 0)
            raise ValueError(f"client {empty} has no samples; use another partition or fewer clients")
        last = max(int(part.max()) for part in self.parts)
        if last >= len(self.data.labels):
            raise ValueError(f"a client holds sample {last}, but there are {len(self.data.labels)} samples")
        for labels in (self.data.labels, self.data.test_labels):
            if labels.numel() and not 0 <= int(labels.min()) <= int(labels.max()) < self.classes:
                wrong = int(labels.max()) if int(labels.max()) >= self.classes else int(labels.min())
                raise ValueError(f"a label is {wrong}, but there are {self.classes} classes, numbered from 0")
        try:
            self.dtype, self.device = torch.float32, torch.device("cpu")
            with torch.no_grad():
                logits = self.net(self.prepare(self.data.images[:2]))
        except RuntimeError as error:
            raise ValueError(f"the network does not take images of shape {list(self.data.images.shape[1:])}: {error}") from error
        if logits.shape[-1] != self.classes:
            raise ValueError(f"the network has {logits.shape[-1]} outputs, but there are {self.classes} classes")


class Bound:
    """A network with one set of weights."""

    def __init__(self, net: nn.Module, weights: dict[str, Tensor]):
        self._net, self._weights = net, weights

    def __call__(self, x: Tensor) -> Tensor:
        return functional_call(self._net, self._weights, (x,))

    def features(self, x: Tensor) -> Tensor:
        return self._view(x, Net.features)

    def head(self, z: Tensor) -> Tensor:
        return self._view(z, Net.classify)

    def taps(self, x: Tensor) -> list[Tensor]:
        return self._view(x, Net.taps)

    def resume(self, tap: Tensor, level: int) -> Tensor:
        return self._view(tap, lambda net, h: net.resume(h, level))

    def _view(self, x: Tensor, view: Callable) -> Any:
        return functional_call(self._net, self._weights, (x, view))


class NeuralOracle(Oracle):
    """Gradients by automatic differentiation, for all clients at once or one after another."""

    def __init__(self, problem: Neural, members: np.ndarray):
        self.problem = problem
        parts = [torch.from_numpy(problem.parts[i]) for i in members]
        self.counts = [len(part) for part in parts]
        self.rows = nn.utils.rnn.pad_sequence(parts, batch_first=True).to(problem.device)
        needs = problem.objective.needs
        self.label_counts = problem.label_counts(members) if "label_counts" in needs else None
        self.looks_back = "global" in needs
        self.start: Tensor | None = None
        self.previous: Tensor | None = None

    def begin(self, start: Tensor, previous: Tensor | None) -> None:
        self.start = start.detach() if self.looks_back else None
        self.previous = None if previous is None else previous.detach()

    def grad(self, y: Tensor, batch: Tensor | None = None, draws: Draws | None = None) -> Tensor:
        if batch is None:
            return torch.stack([self._full(c, y[c]) for c in range(len(y))])
        problem = self.problem
        present = batch >= 0
        samples = self.rows.gather(1, batch.clamp(min=0))
        x = problem.prepare(problem._x[samples.reshape(-1)], draws)
        x = x.reshape(*samples.shape, *x.shape[1:])
        weights = present.to(y.dtype)
        weights = weights / weights.sum(1, keepdim=True)
        arguments = (x, problem._y[samples], weights, self.start, self.previous, self.label_counts)
        if problem.stacked:
            dims = tuple(None if a is None else 0 for a in arguments)
            return vmap(grad(self.loss), in_dims=(0, *dims), randomness="error")(y, *arguments)
        return torch.stack([self._one(c, y[c], *(None if a is None else a[c] for a in arguments)) for c in range(len(y))])

    def loss(
        self, y: Tensor, x: Tensor, labels: Tensor, weights: Tensor,
        start: Tensor | None, previous: Tensor | None, counts: Tensor | None,
    ) -> Tensor:  # fmt: skip
        """One client's loss as a function of its weights."""
        others = Others(*(None if v is None else self._bound(v) for v in (start, previous)), counts)
        return self.problem.objective.loss(self._bound(y), Batch(x, labels, weights), others)

    def _bound(self, vector: Tensor) -> Bound:
        return Bound(self.problem.net, unflatten(vector, self.problem.spec))

    def _one(self, client: int, y: Tensor, *arguments: Any) -> Tensor:
        with torch.enable_grad():
            leaf = y.detach().requires_grad_()
            return torch.autograd.grad(self.loss(leaf, *arguments), leaf)[0]

    def _full(self, client: int, y: Tensor) -> Tensor:
        problem, n = self.problem, self.counts[client]
        others = [None if v is None else v[client] for v in (self.start, self.previous, self.label_counts)]
        total = torch.zeros_like(y)
        for samples in self.rows[client, :n].split(PASS):
            weights = torch.full((len(samples),), 1 / n, dtype=y.dtype, device=y.device)
            x = problem.prepare(problem._x[samples])
            total += self._one(client, y, x, problem._y[samples], weights, *others)
        return total


__all__ = ["Bound", "Neural", "NeuralOracle", "Spec"]
