"""Neural networks: any module without batch statistics, on any samples, with any loss."""

from __future__ import annotations

import copy
import dataclasses
import math
import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Self

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import Tensor, nn

from undrift.core.params import BadParameters, about
from undrift.core.problem import Problem, Sums, Unsupported
from undrift.data.images import ImageSet
from undrift.objectives.base import Objective
from undrift.objectives.crossentropy import CrossEntropy
from undrift.problems.exact import digest
from undrift.problems.neural.checks import INPUTS, choose, refuse, refuse_network
from undrift.problems.neural.data import Fields, Output, SampleRows, client_data, count
from undrift.problems.neural.loss import Loss, OwnLoss
from undrift.problems.neural.metrics import (
    NOBODY,
    OF_TRAINING,
    ClassScoring,
    EvaluationSet,
    Metric,
    added,
    evaluated,
    of_each_part,
    predicted,
)
from undrift.problems.neural.mlp_gradient import MLPGradient
from undrift.problems.neural.network import FlatNetwork
from undrift.problems.neural.oracle import NeuralOracle, Placed, Precision, refuse_precision
from undrift.problems.ragged import relabelled

if TYPE_CHECKING:
    from undrift.data.augment import Pipeline

NEAR = 1_000_000
"""Weights that one core works on at a time: more leave its cache, fewer waste its time."""


class Neural(Problem):
    """A network on data of any kind, with any loss: f_i is its mean on client i's samples.

    **Data.** ``train`` is a pair (inputs, targets) of tensors or arrays of any shape and type,
    several inputs being a tuple or a dictionary; or a ``Dataset`` of such pairs; or an
    ``undrift.data.ImageSet``. ``parts`` are the sample numbers of each client (a sample may occur
    twice), or masks of all samples, as the splits of ``undrift.data`` give them. A list has the
    data of each client instead, without ``parts``. uint8 inputs are images (rows of
    uint8 are refused): ``pipeline`` normalises them, and augments those of mini-batches; without it
    they are scaled to [0, 1]. Other inputs reach the network as they are: floating point, which
    must be finite, in the precision of the run, and whole numbers unchanged.

    A ``Dataset`` is read into memory once. Arrays and tensors are not copied: on a CPU those of
    ``np.memmap`` stay on disk.

    **Test data.** ``test`` is data like ``train`` that no client holds, a list with the test data
    of each client (``None`` for one without), or a share such as 0.2 that is held out of every
    client's samples.

    **Loss.** ``loss(outputs, targets)`` gives one number, the mean over a mini-batch; left out: the
    cross-entropy, where targets are classes. ``objective`` is one of ``undrift.objectives``
    instead. ``metrics`` are names (accuracy, top5, mse, rmse, mae, f1, auc, balanced_accuracy) or
    functions of outputs and targets that give a number for each sample, or a pair of numbers and
    weights, such as a mean over a sample's tokens and how many it has; or an ``undrift.Overall``,
    which gives one number for all samples, as f1, auc and balanced_accuracy do. Of the others the
    row of a run has the means over all test samples, with weights sum(weights * numbers) /
    sum(weights); ``train_metrics`` adds those over the clients' training samples, every client with
    equal weight however uploads are aggregated. Without ``test``, ``loss`` is f(x), that mean of
    the training losses.

    **Network.** Training starts from the weights that it has. Frozen parameters stay what they
    are. Gradients are of the network in training mode, metrics in evaluation mode. Dropout
    (``nn.Dropout`` and its variants for whole channels) acts in local steps, on mini-batches and on
    all samples, by masks that the engine draws. Elsewhere, in metrics and in gradients on all data
    such as ``f.grad(y)``, nothing is dropped and no sample is augmented. A network that draws from
    torch's generator in training (``F.dropout``, an LSTM or attention with dropout) runs one client
    after another, on one thread, each step from a seed that the engine draws. One that draws in
    evaluation mode, or by NumPy or Python, or that changes its buffers in training, is refused if a
    first pass shows it. One that lets the samples of a batch see one another, as by attention over
    the batch, is given each mini-batch without padding, and no samples of several clients; on all
    samples, and when it is judged, it sees 512 at a time.

    **Speed.** ``stacked`` runs the cohort's networks as one (``torch.func.vmap``) or one after
    another; by default stacked if the network has no convolutions and ``vmap`` takes it. On a CPU
    every thread (``torch.set_num_threads``, OMP_NUM_THREADS) works on a few clients at a time; no
    number depends on how many threads. Cross-entropy of linear layers with ReLU between is
    differentiated by formula, convolutions run with channels last. On a GPU the cohort's gradient
    is captured as a CUDA graph, its loss compiled unless ``compiled`` is false.

    **Precision.** ``precision`` is that of matrix products in the gradients of mini-batches: f32,
    tf32 (on a GPU that has it), or bf16 (torch.autocast, on any device). Weights, updates,
    gradients on all samples and metrics stay float32, whose products on a GPU are TF32 unless
    ``precision`` is f32. torch switches TF32 for a whole process, so of several problems on a GPU
    the one that was placed there last decides.

    >>> import torch, undrift as ud
    >>> x = torch.linspace(-1, 1, 40).unsqueeze(1)
    >>> split = ud.data.by_label(x.flatten(), clients=4)
    >>> problem = Neural(torch.nn.Linear(1, 1), (x, 3 * x), split, loss=torch.nn.MSELoss())
    >>> run = ud.run(ud.Scaffold(lr=0.3), problem, rounds=100, steps=5)
    >>> abs(run.module().weight.item() - 3) < 1e-3
    True
    """

    differentiates = True

    def __init__(
        self,
        module: nn.Module,
        train: object,
        parts: Sequence[ArrayLike] | None = None,
        *,
        test: object = None,
        loss: Loss | None = None,
        metrics: Sequence[str | Metric] | Mapping[str, str | Metric] | str | None = None,
        pipeline: Pipeline | None = None,
        objective: Objective | None = None,
        stacked: bool | None = None,
        precision: Precision = "f32",
        compiled: bool = True,
        train_metrics: bool = False,
    ):
        refuse_precision(precision, torch.float32)
        with about("Neural", "module"):
            refuse_network(module)
            network = FlatNetwork(module)
        self.layout, self.dim = network.layout, network.layout.dim
        self.data, names, data = train, None, train
        if isinstance(train, ImageSet):
            if test is not None:
                text = "an ImageSet has test images of its own: leave out test"
                raise BadParameters("Neural", {"test": text})
            names = tuple(map(str, train.classes))
            data, test = (train.images, train.labels), (train.test_images, train.test_labels)
        found = client_data(data, parts, test)
        self.parts = found.parts
        self.metric_samples = "train" if found.test is None else "test"
        self.own_samples = "train" if found.test_parts is None else "test"
        self.clients, self.samples = len(self.parts), [len(part) for part in self.parts]
        self.note = getattr(train, "note", "")
        self.pipeline, self.train_metrics = pipeline, train_metrics or found.test is None
        self.augmentation = getattr(pipeline, "augmentation", None)
        self.precision, self._stacked = precision, stacked
        self.placed = Placed(network, found, pipeline, precision, compiled)
        refuse(INPUTS, (found.train.x, pipeline))
        self.objective, scoring, self.class_names = choose(
            self.placed, names, loss, objective, metrics
        )
        self.keyed = bool(network.keys) or network.draws
        self.labelled = bool(self.class_names)
        self.remembers = "previous" in self.objective.needs
        self.placed.objective, self.placed.scoring = self.objective, scoring
        # A few real samples decide what follows: whether there is a formula, whether vmap takes the
        # network, and how images lie in memory.
        some = self.placed.few().x
        if isinstance(self.objective, OwnLoss) or type(self.objective) is CrossEntropy:
            flat = isinstance(some, Tensor) and some.dim() == 2
            self.placed.mlp = MLPGradient.of(network.net, network.layout, flat)
        # Found by a trial: no list of layers tells whether a user's forward mixes its samples.
        self.placed.mixes = self.placed.mlp is None and network.mixes(some)
        self.placed.stacked = not network.convolves if stacked is None else stacked
        self.placed.stacked &= not network.draws
        self._settle()
        if stacked is None and self.placed.mlp is None and self.placed.stacked:
            self.placed.stacked = self.at(np.array([0, 0])).takes_vmap()
        # Convolutions are faster with channels last; some forwards cannot bear it, by a view().
        if network.convolves:
            network.takes_last = isinstance(some, Tensor) and network.takes_channels_last(some)
        self._settle()

    def _twin(self, placed: Placed) -> Self:
        """The same problem there."""
        # A twin, and not this one, which others may hold where it is.
        twin = copy.copy(self)
        twin.placed = placed
        return twin

    def to(self, dtype: torch.dtype, device: torch.device) -> Self:
        twin = self._twin(self.placed.to(dtype, torch.device(device)))
        twin._settle()
        return twin

    def refuse_overflow(self) -> None:
        self.placed.samples.refuse_overflow(self.dtype)

    def _settle(self) -> None:
        """Follow where it was placed."""
        placed = self.placed
        self.dtype, self.device, self.together = placed.dtype, placed.device, None
        if self.device.type == "cpu" and not self._stacked:
            self.together = max(1, NEAR // self.dim) if placed.stacked else 1
            if placed.network.draws:  # all threads share a generator
                self.together = sys.maxsize

    @property
    def net(self) -> nn.Module:
        """The network that gradients and metrics are of, rearranged for speed."""
        return self.placed.network.net

    def start(self) -> Tensor:
        return self.placed.network.start.clone()

    def digest(self) -> str:
        layout, start, found = self.layout, self.start(), self.placed.samples
        tables = [table for table in (found.train, found.test) if table is not None]
        # Digests are kept in run folders: these words must stay.
        words = f"Spec(names={layout.names!r}, shapes={layout.shapes!r})".encode()
        if isinstance(data := self.data, ImageSet):
            rows: list[object] = [data.images, data.labels, data.test_images, data.test_labels]
        else:
            rows = [part for table in tables for pair in table.tensors() for part in pair]
            rows += [] if found.test_parts is None else [np.concatenate(found.test_parts)]
        held = (np.concatenate(self.parts), self.samples)
        return digest("neural", *rows, *held, words, start, *self.tensors(start).values())

    def choices(self) -> dict[str, object]:
        net, objective = self.module(self.start()), self.objective
        ours = type(net).__module__.startswith("undrift.")
        return {
            "network": repr(net) if ours else net,
            "loss": objective.function if isinstance(objective, OwnLoss) else objective,
            "metrics": self.placed.scoring.metrics | self.placed.scoring.overall,
            "train_metrics": self.train_metrics,
            "pipeline": self.pipeline,
        }

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

    def metrics(self, x: Tensor) -> dict[str, float]:
        """Mean loss and metrics of all test samples.

        With ``train_metrics`` also ``train_loss`` and so on of the clients' samples, every client
        with equal weight and no sample augmented: if that loss is what is minimised, it is f(x).
        """
        return self.of_pieces(self.pieces(x), x)

    def client_metrics(self, x: Tensor, members: np.ndarray | None = None) -> Sums:
        """On test samples where clients have their own (NaN for one without), else on its training
        samples.
        """
        samples = self.placed.samples
        chosen = range(self.clients) if members is None else members.tolist()
        table, parts = samples.train, self.parts
        if samples.test_parts is not None and samples.test is not None:
            table, parts = samples.test, samples.test_parts
        own = [parts[i] for i in chosen]
        pairs = [(x, own)] if x.ndim == 1 else [(v, [part]) for v, part in zip(x, own, strict=True)]
        found = [self._of_clients(row, table, some) for row, some in pairs]
        scoring = self.placed.scoring
        names = [
            name
            for name in scoring.names
            if name != "top5" or not isinstance(scoring, ClassScoring)
        ]
        names += scoring.overall
        return {name: torch.cat([some[name] for some in found]) for name in names}

    def predictions(self, x: Tensor) -> tuple[Output, Fields]:
        """All outputs of the network with the weights ``x``, and the targets, on the CPU.

        They are of the samples that metrics are of: the test samples where there are some, client
        by client if clients hold them, else the training samples.
        """
        found = self._predicted(x, next(iter(self._sets().values())))
        return found.x, found.y

    def _predicted(self, x: Tensor, given: EvaluationSet) -> SampleRows:
        return predicted(self.placed.judging(x), self.placed.prepared, given, self.device)

    def weight_of(self, metric: str) -> int:
        """Test samples count alike, and so do clients where metrics are of training samples."""
        if metric.removeprefix(OF_TRAINING) in self.placed.scoring.overall:
            raise Unsupported(
                f"{metric} is of all samples at once, and no mean of what clients find apart: "
                "leave it out of metrics where clients keep their data"
            )
        test = self.placed.samples.test
        return 1 if test is None or metric.startswith(OF_TRAINING) else count(test.x)

    def _of_clients(self, x: Tensor, table: SampleRows, parts: Sequence[np.ndarray]) -> Sums:
        placed, sizes = self.placed, [len(part) for part in parts]
        given_set = EvaluationSet.of(table, parts, sizes, placed.alone, self.device)
        model = placed.judging(x)
        found = of_each_part(model, placed.prepared, placed.scoring, given_set, sizes, self.device)
        if overall := placed.scoring.overall:
            whole = self._predicted(x, given_set) if sum(sizes) else None
            rows = np.split(np.arange(sum(sizes)), np.cumsum(sizes)[:-1])
            each = [whole.take(torch.from_numpy(k)) if whole and len(k) else None for k in rows]
            for name, one in overall.items():
                numbers = [one.of(name, *some) if some else math.nan for some in each]
                found[name] = torch.tensor(numbers, dtype=torch.float64, device=self.device)
        return found

    def pieces(self, x: Tensor, part: int = 0, parts: int = 1) -> Tensor:
        """One for each forward pass."""
        judged = self.placed.judging(x), self.placed.prepared, self.placed.scoring
        # A share may end within a set: passes are numbered through all of them.
        passes = [(given, piece) for given in self._sets().values() for piece in given.passes]
        some = passes[len(passes) * part // parts : len(passes) * (part + 1) // parts]
        rows = [evaluated(*judged, given, piece, self.device) for given, piece in some]
        nothing = torch.zeros(0, 2 * len(judged[2].names), dtype=torch.float64, device=self.device)
        return torch.stack(rows) if rows else nothing

    def of_pieces(self, pieces: Tensor, x: Tensor) -> dict[str, float]:
        scoring, means = self.placed.scoring, dict[str, dict[str, float]]()
        for name, given in self._sets().items():
            own, pieces = pieces[: len(given.passes)], pieces[len(given.passes) :]
            means[name] = scoring.means(added(own, scoring, given))
            if scoring.overall:
                whole = self._predicted(x, given)
                means[name] |= {name: one.of(name, *whole) for name, one in scoring.overall.items()}
        found = means.get("test", {})
        if "train" in means:
            found |= {OF_TRAINING + name: v for name, v in means["train"].items()}
            found = {"loss": means["train"]["loss"], **found}
        return found

    def _sets(self) -> dict[str, EvaluationSet]:
        """What is judged: the test samples, all alike, and with ``train_metrics`` those of the
        clients, every client alike.
        """
        held, found, alone = self.placed.samples, dict[str, EvaluationSet](), self.placed.alone
        if held.test is not None:
            parts = held.test_parts or [np.arange(count(held.test.x))]
            ones = [1.0] * len(parts)
            found["test"] = EvaluationSet.of(held.test, parts, ones, alone, self.device)
        if self.train_metrics:
            weights, alike = [1 / n for n in self.samples], bool(self.placed.scoring.counted)
            found["train"] = EvaluationSet.of(
                held.train, self.parts, weights, alone, self.device, alike
            )
        return found

    def label_counts(self, members: np.ndarray | None = None) -> Tensor | None:
        y = self.placed.samples.train.y
        if not self.labelled or not isinstance(y, Tensor):
            return None
        labels, classes = y.cpu().numpy(), len(self.class_names)
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
        numbers = np.concatenate([[], *noise.values()])
        rows = np.concatenate([NOBODY, *(self.parts[client] for client in noise)])
        rows, numbers = rows[numbers >= 0], numbers[numbers >= 0]
        samples, train = self.placed.samples, self.placed.samples.train
        assert isinstance(train.y, Tensor)
        given = torch.from_numpy(rows), torch.from_numpy(numbers)
        y = relabelled(train.y, *given, len(self.class_names))
        wrong = samples._replace(train=train._replace(y=y))
        return self._twin(dataclasses.replace(self.placed, samples=wrong, captured={}))

    def release(self) -> None:
        self.placed.release()

    def plain(self) -> Neural | None:
        if not any(self.placed.captured.values()):
            return None
        return self._twin(dataclasses.replace(self.placed, records=False, captured={}))
