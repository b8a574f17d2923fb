"""Neural networks: any module without batch statistics, on labelled samples, with any objective."""

from __future__ import annotations

import copy
import dataclasses
import functools
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Self

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import Tensor, nn

from undrift.core.params import BadParameters
from undrift.core.problem import Problem, Sums, add_up
from undrift.objectives.base import Objective
from undrift.objectives.crossentropy import CrossEntropy
from undrift.problems.digest import digest
from undrift.problems.neural import input as given
from undrift.problems.neural.measure import Judged, added, judged
from undrift.problems.neural.mlp_gradient import MLPGradient
from undrift.problems.neural.network import FlatNetwork
from undrift.problems.neural.oracle import NeuralOracle, Placed, Precision
from undrift.problems.ragged import positions, relabelled

if TYPE_CHECKING:
    from undrift.data.augment import Pipeline
    from undrift.data.images import ImageSet

NOBODY, NO_NOISE = np.array([], dtype=np.int64), np.array([])
NEAR = 1_000_000
"""Weights that one core works on at a time: more leave its cache, fewer waste its time."""
FEW = 2_000_000
"""Weights of a convolutional network that is faster on a CPU with its channels last."""


class Neural(Problem):
    """f_i is the mean loss of a network on client i's samples.

    **Inputs.** ``data`` holds training and test samples, as an ``undrift.data.images.ImageSet``;
    ``parts`` are the sample numbers of each client (a sample may occur twice), or masks of all
    samples. ``pipeline`` normalises uint8 images, and augments those of mini-batches; without it
    they are scaled to [0, 1]. Other inputs reach the network as they are: floating point, which
    must be finite, in the precision of the run, and whole numbers unchanged.

    **Network.** Frozen parameters stay what they are. Gradients are of the network in training
    mode, metrics in evaluation mode. Dropout (``nn.Dropout`` and its variants for whole channels)
    acts in local steps, on mini-batches and on all samples, by masks that the engine draws.
    Elsewhere, in metrics and in gradients on all data such as ``f.grad(y)``, nothing is dropped and
    no sample is augmented. A network that draws from the generators of torch, NumPy or Python, or
    changes its buffers in training, is refused if a first pass shows it.

    **Speed.** ``stacked`` runs the cohort's networks as one (``torch.func.vmap``) or one after
    another; by default stacked if the network has no convolutions and ``vmap`` takes it. On a CPU
    every thread (``torch.set_num_threads``, OMP_NUM_THREADS) works on a few clients at a time; no
    number depends on how many threads. Cross-entropy of linear layers with ReLU between is
    differentiated by formula, convolutions run with channels last. On a GPU the cohort's gradient
    is captured as a CUDA graph, its loss compiled unless ``compiled`` is false.

    **Precision.** ``precision`` is that of matrix products on a GPU: f32, tf32 or bf16 (weights and
    updates stay float32). torch switches TF32 for a whole process, so of several problems on a GPU
    the one that was placed there last decides.

    ``training`` adds metrics on the clients' samples to those on the test samples.
    """

    differentiates = True
    labelled = True

    def __init__(
        self,
        module: nn.Module,
        data: ImageSet,
        parts: Sequence[ArrayLike],
        *,
        pipeline: Pipeline | None = None,
        objective: Objective | None = None,
        stacked: bool | None = None,
        precision: Precision = "f32",
        compiled: bool = True,
        training: bool = False,
    ):
        given.refuse_module(module)
        self.objective = CrossEntropy() if objective is None else given.objective(objective)
        network = FlatNetwork(module)
        self.drops, self.layout, self.dim = network.drops, network.layout, network.layout.dim
        samples = given.samples(data, pipeline)
        self.parts = positions(parts, len(samples.y))
        given.refuse_unfinite(samples, self.parts)
        self.clients, self.samples = len(self.parts), [len(part) for part in self.parts]
        self.data, self.pipeline, self.training = data, pipeline, training
        self.augmentation = None if pipeline is None else pipeline.augmentation
        self.remembers = "previous" in self.objective.needs
        self.class_names, self.note = tuple(map(str, data.classes)), getattr(data, "note", "")
        self.precision, self._stacked = precision, stacked
        plain = type(self.objective) is CrossEntropy
        self.placed = Placed(
            network,
            samples,
            self.objective,
            pipeline,
            mlp=MLPGradient.of(network.net, network.layout) if plain else None,
            stacked=not network.convolves if stacked is None else stacked,
            precision=precision,
            compiled=compiled,
        )
        self._settle()
        given.refuse_inside(network.net, self.objective)
        self._refuse_network()
        if stacked is None and self.placed.mlp is None and not network.convolves:
            self.placed.stacked = self.at(np.array([0, 0])).takes_vmap()
        if network.convolves and self.dim < FEW:
            network.channels_last = network.takes_channels_last(self.placed.few())
        self._settle()

    def to(self, dtype: torch.dtype, device: torch.device) -> Self:
        twin = copy.copy(self)
        twin.placed = self.placed.to(dtype, torch.device(device))
        twin._settle()
        return twin

    def _settle(self) -> None:
        """Follow where it was placed."""
        placed = self.placed
        self.dtype, self.device, self.together = placed.dtype, placed.device, None
        if self.device.type == "cpu" and not self._stacked:
            self.together = max(1, NEAR // self.dim) if placed.stacked else 1

    @property
    def net(self) -> nn.Module:
        """The network that gradients and metrics are of, rearranged for speed."""
        return self.placed.network.net

    def start(self) -> Tensor:
        return self.placed.network.start.clone()

    def digest(self) -> str:
        data, layout, start = self.data, self.layout, self.start()
        # Digests are kept in run folders: these words must stay.
        words = f"Spec(names={layout.names!r}, shapes={layout.shapes!r})".encode()
        images = (data.images, data.labels, data.test_images, data.test_labels)
        held = (np.concatenate(self.parts), self.samples)
        return digest("neural", *images, *held, words, start, *self.tensors(start).values())

    def module(self, x: Tensor) -> nn.Module:
        """A copy of the module as it was given, with the weights ``x [d]``.

        It is on the CPU, in evaluation mode and in its own precision. Buffers and frozen
        parameters, which ``x`` does not hold, are as they were given.
        """
        return self.placed.network.module(x)

    def state_dict(self, x: Tensor) -> dict[str, object]:
        """``module(x).state_dict()`` without shared memory: tied weights appear under each name."""
        return {name: copy.deepcopy(value) for name, value in self.module(x).state_dict().items()}

    def tensors(self, x: Tensor) -> dict[str, Tensor]:
        return {name: v for name, v in self.state_dict(x).items() if isinstance(v, Tensor)}

    def at(self, members: np.ndarray | None = None) -> NeuralOracle:
        members = np.arange(self.clients) if members is None else members
        counts = self.label_counts(members) if "label_counts" in self.objective.needs else None
        return NeuralOracle(self.placed, [self.parts[i] for i in members], counts)

    def combine(self, partials: Sequence[Mapping[str, Tensor]], x: Tensor) -> dict[str, float]:
        """On the test samples, looked at here: mean cross-entropy, accuracy and top-5 accuracy.

        With ``training`` also ``train_loss`` and ``train_accuracy`` of the clients' samples, every
        client with equal weight and no sample augmented: with cross-entropy, that loss is f(x).
        """
        sums = add_up(partials) if self.training else {}
        return self._means(added(self._judge(x)(self._test)), sums)

    def partial_metrics(self, x: Tensor, members: np.ndarray | None = None) -> Sums:
        """Nothing but with ``training``: the test samples belong to whoever combines."""
        if not self.training:
            return {}
        train = self._train(members)
        total = added(self._judge(x)(train))
        return {"train": total, "weight": torch.tensor(train.weights.sum())}

    def pieces(self, x: Tensor, part: int = 0, parts: int = 1) -> Tensor:
        """One for each forward pass."""
        judge, sets = self._judge(x), [self._test, *([self._train()] if self.training else [])]
        counts = [samples.passes for samples in sets]
        first, last = (sum(counts) * k // parts for k in (part, part + 1))
        found = []
        for samples, count in zip(sets, counts, strict=True):
            found.append(judge(samples, slice(max(first, 0), max(last, 0))))
            first, last = first - count, last - count
        return torch.cat(found)

    def of_pieces(self, pieces: Tensor, x: Tensor) -> dict[str, float]:
        sums: Sums = {}
        if self.training:
            weight = torch.tensor(self._train().weights.sum())
            sums = {"train": added(pieces[self._test.passes :]), "weight": weight}
        return self._means(added(pieces[: self._test.passes]), sums)

    def _judge(self, x: Tensor) -> Callable[..., Tensor]:
        """Measures the network with the weights ``x``."""
        model = self.placed.network.bound(x.detach().to(self.device, self.dtype))
        return functools.partial(judged, model, self.placed.prepare)

    @property
    def _test(self) -> Judged:
        held = self.placed.samples
        everyone = np.arange(len(held.test_y))
        return Judged(held.test_x, held.test_y, everyone, np.ones(len(everyone)))

    def _train(self, members: np.ndarray | None = None) -> Judged:
        parts = self.parts if members is None else [self.parts[i] for i in members]
        sizes = np.array([len(part) for part in parts], dtype=np.int64)
        mine, weights = np.concatenate([NOBODY, *parts]), np.repeat(1 / sizes, sizes)
        return Judged(self.placed.samples.x, self.placed.samples.y, mine, weights)

    def _means(self, test: Tensor, sums: Mapping[str, Tensor]) -> dict[str, float]:
        """Metrics from sums over test samples and, if there are any, over those of clients."""
        found = _means(("loss", "accuracy", "top5"), test, len(self.placed.samples.test_y))
        if sums:
            found |= _means(("train_loss", "train_accuracy"), sums["train"], float(sums["weight"]))
        return found

    def label_counts(self, members: np.ndarray | None = None) -> Tensor:
        labels, classes = self.placed.samples.y.cpu().numpy(), len(self.class_names)
        chosen = np.arange(self.clients) if members is None else members
        counts = [np.bincount(labels[self.parts[i]], minlength=classes) for i in chosen]
        return torch.from_numpy(np.stack(counts)).to(self.device, self.dtype)

    def with_label_noise(self, noise: Mapping[int, np.ndarray]) -> Self:
        """Refused where a sample is held more than once: it has one label."""
        if np.bincount(np.concatenate(self.parts)).max() > 1:
            text = (
                "label-noise needs samples that one client holds once, and some are held more "
                "often: use another partition"
            )
            raise BadParameters("Neural", {"faults": text})
        numbers = np.concatenate([NO_NOISE, *noise.values()])
        rows = np.concatenate([NOBODY, *(self.parts[client] for client in noise)])
        rows, numbers = rows[numbers >= 0], numbers[numbers >= 0]
        samples, classes = self.placed.samples, len(self.class_names)
        y = relabelled(samples.y, torch.from_numpy(rows), torch.from_numpy(numbers), classes)
        twin = copy.copy(self)
        twin.placed = dataclasses.replace(self.placed, samples=samples._replace(y=y), captured={})
        return twin

    def release(self) -> None:
        self.placed.release()

    def _refuse_network(self) -> None:
        network, images = self.placed.network, self.placed.few()
        with given.repeatable():
            outputs = [network.trial(images, training) for training in (True, False)]
        for logits in outputs:
            given.refuse_logits(logits, len(images), len(self.class_names))
        given.refuse_memory(network.net, network.own(training=True))


def _means(names: Sequence[str], total: Tensor, weight: float) -> dict[str, float]:
    """The first of these sums, divided by the weight of all samples."""
    return dict(zip(names, (total / weight).tolist(), strict=False))
