"""A module, data and a loss of a user's own as the problem of one client, in flat coordinates."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NoReturn

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset, RandomSampler, SequentialSampler, default_collate

from undrift.core.problem import Oracle, Problem
from undrift.flower.network import Described
from undrift.models.batch_norm import refuse_batch_statistics
from undrift.models.layout import flatten, unflatten
from undrift.models.state_dict import StateDict

CHUNK = 256
"""Samples that a gradient on all of them takes at a time."""
FEW = 4
"""Samples that a module and a loss are tried on."""

Data = Dataset[Any] | DataLoader[Any]
Loss = Callable[[Any, Any], Tensor]


class ModuleProblem(Problem):
    """f is the mean loss of ``model`` on ``data``; a point is its trainable parameters.

    ``loss(model(inputs), targets)`` is the mean loss of a batch that is a pair; for any other batch
    ``batch_loss(model, batch)`` is. Of a loader the dataset and its ``collate_fn`` are used: the
    engine draws the mini-batches. Before every gradient the generators of torch, NumPy and Python
    are set to what the engine has drawn, so that dropout and random transforms can be repeated.
    """

    clients = 1
    differentiates = True
    keyed = True

    def __init__(
        self, model: nn.Module, data: Data, loss: Loss | None, batch_loss: Loss | None = None
    ):
        if not isinstance(model, nn.Module):
            raise TypeError(f"model must be a torch.nn.Module; got a {type(model).__name__}")
        if (loss is None) == (batch_loss is None):
            raise TypeError("give loss(outputs, targets), or batch_loss(model, batch)")
        refuse_batch_statistics(model)
        self.model, self.loss, self.batch_loss = model, loss, batch_loss
        self.first, self.layout = flatten(model)
        self.weights = [model.get_parameter(name) for name in self.layout.names]
        self.dim, self.dtype, self.device = self.layout.dim, self.first.dtype, self.first.device
        kinds = {weight.dtype for weight in self.weights}
        if not kinds <= {torch.float32} and not kinds <= {torch.float64}:
            listed = ", ".join(sorted(map(str, kinds)))
            raise ValueError(f"the trainable parameters are {listed}: use float32, or float64")
        self.data, self.collate, self.batch = _opened(data)
        self.samples = [len(self.data)]
        if not self.samples[0]:
            raise ValueError("this client has no samples")

    def at(self, members: np.ndarray | None = None) -> ModuleOracle:
        return ModuleOracle(self)

    def to(self, dtype: torch.dtype, device: torch.device) -> NoReturn:
        raise RuntimeError("a module of a user's own stays where it is")

    def start(self) -> Tensor:
        return self.first.clone()

    def gradient(self, x: Tensor, samples: Sequence[int] | None, seed: int | None) -> Tensor:
        """At ``x [d]``, on some samples or all; without a seed nothing is dropped."""
        with torch.no_grad():
            values = unflatten(x, self.layout).values()
            for weight, value in zip(self.weights, values, strict=True):
                weight.copy_(value)
        self.model.train(seed is not None)
        parts = [samples] if samples is not None else _chunks(self.samples[0])
        total = torch.zeros_like(x)
        with _seeded(seed or 0, self.device), torch.enable_grad():
            for part in parts:
                share = 1.0 if samples is not None else len(part) / self.samples[0]
                loss = self.mean_loss(part)
                found = torch.autograd.grad(loss, self.weights, materialize_grads=True)
                total.add_(torch.cat([g.reshape(-1) for g in found]), alpha=share)
        return total

    def mean_loss(self, samples: Sequence[int]) -> Tensor:
        """Of the module as it is."""
        batch = _placed(self.collate([self.data[i] for i in samples]), self.device)
        if self.batch_loss is not None:
            return self.batch_loss(self.model, batch)
        assert self.loss is not None
        if not isinstance(batch, Sequence) or len(batch) != 2:
            raise ValueError(
                f"a batch is a {type(batch).__name__}, not a pair of inputs and targets: give "
                "batch_loss(model, batch) in the place of loss"
            )
        return self.loss(self.model(batch[0]), batch[1])

    def check(self) -> None:
        """Try module and loss on a few samples. Raises :class:`ValueError`."""
        some = [*range(min(FEW, self.samples[0]))]
        buffers = {name: buffer.clone() for name, buffer in self.model.named_buffers()}
        self.model.train(False)
        with torch.no_grad(), _seeded(0, self.device):
            together = self.mean_loss(some)
            if together.dim():
                text = f"the loss of a batch is {list(together.shape)} numbers, not one"
                raise ValueError(f"{text}: take its mean")
            alone = sum(float(self.mean_loss([i])) for i in some)
        if len(some) > 1 and abs(alone) > 1e-6 and abs(float(together) / alone - 1) < 1e-3:
            raise ValueError("the loss adds up the samples of a batch: take their mean")
        self.gradient(self.first, some, 0)
        for name, buffer in self.model.named_buffers():
            if not torch.equal(buffer, buffers[name]):
                raise ValueError(
                    f"the model changes its buffer {name!r} in training, which clients do not "
                    "share: leave out the layer that does so"
                )

    def about(self) -> dict[str, Any]:
        """What a server may know of it."""
        state = StateDict.of(self.model)
        return {"samples": self.samples[0], "network": Described.of(state).table()}


class ModuleOracle(Oracle):
    """The gradient of a module, one row after another."""

    def __init__(self, problem: ModuleProblem):
        self.problem = problem

    def grad(
        self,
        y: Tensor,
        batch: Tensor | None = None,
        draws: object = None,
        keys: Tensor | None = None,
    ) -> Tensor:
        positions = None if batch is None else [at for at in batch[0].tolist() if at >= 0]
        seed = None if keys is None else int(keys[0])
        return self.problem.gradient(y[0], positions, seed).unsqueeze(0)


def _opened(data: Data) -> tuple[Any, Callable[[list[Any]], Any], int | None]:
    """The samples, how they become a batch, and how many a loader puts together."""
    if not isinstance(data, DataLoader):
        if not hasattr(data, "__getitem__") or not hasattr(data, "__len__"):
            raise TypeError(
                f"data is a {type(data).__name__} without numbered samples: give a Dataset with a "
                "length, or its DataLoader"
            )
        return data, default_collate, None
    sampler = data.sampler
    shuffles = type(sampler) is RandomSampler and not sampler.replacement
    if data.batch_size is None or not (shuffles or type(sampler) is SequentialSampler):
        raise ValueError(
            "the loader draws batches in its own way, and the method has to: give its dataset"
        )
    dataset, collate, _ = _opened(data.dataset)
    return dataset, data.collate_fn or collate, data.batch_size


def _chunks(count: int) -> list[range]:
    return [range(at, min(at + CHUNK, count)) for at in range(0, count, CHUNK)]


def _placed(batch: Any, device: torch.device) -> Any:
    if isinstance(batch, Tensor):
        return batch.to(device)
    if isinstance(batch, Mapping):
        return {name: _placed(part, device) for name, part in batch.items()}
    if isinstance(batch, list):
        return [_placed(part, device) for part in batch]
    if type(batch) is tuple:
        return tuple(_placed(part, device) for part in batch)
    return batch


@contextmanager
def _seeded(seed: int, device: torch.device) -> Iterator[None]:
    """The generators of the process begin at ``seed``, and are afterwards as they were."""
    own, numpys = random.getstate(), np.random.get_state()
    with torch.random.fork_rng([device] if device.type == "cuda" else []):
        random.seed(seed)
        np.random.seed(seed % 2**32)
        torch.manual_seed(seed)
        try:
            yield
        finally:
            random.setstate(own)
            np.random.set_state(numpys)
