"""Gradients of a cohort's networks."""

from __future__ import annotations

import dataclasses
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import islice
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, get_args

import numpy as np
import torch
from torch import Tensor, nn
from torch.func import grad, vmap
from torch.utils._pytree import tree_leaves

from undrift.core.params import BadParameters, describe, not_allowed
from undrift.core.problem import SLICE, MiniBatch, Oracle
from undrift.data.augment import ImageDraws
from undrift.models.arrangement import arrangement
from undrift.models.client_convolutions import ConvOfClients, convolutions_of_clients
from undrift.models.convolutions import FirstConvAsMatmul, convolutions_as_products
from undrift.models.group_norm import TRITON, group_norms_fused
from undrift.objectives.base import Batch, Others
from undrift.objectives.crossentropy import CrossEntropy
from undrift.problems.neural.cuda_graph import Captured, LossForm, capture
from undrift.problems.neural.data import ClientData, Fields, Output, SampleRows, count, mapped
from undrift.problems.neural.loss import LocalLoss, OwnLoss
from undrift.problems.neural.metrics import ClassScoring, Scoring
from undrift.problems.neural.mlp_gradient import MLPGradient, Slope, slope_of_cross_entropy
from undrift.problems.neural.network import FlatNetwork

if TYPE_CHECKING:
    from undrift.data.augment import Pipeline

PASS = 512
"""Samples per pass where a gradient is over all of a client's."""
INDICES = (torch.int64, torch.int32, torch.bool)
CPU = torch.device("cpu")
Precision = Literal["f32", "tf32", "bf16"]


def refuse_precision(given: object, dtype: torch.dtype) -> None:
    """Raise :class:`BadParameters` for products that cannot be in that precision."""
    if given not in get_args(Precision) or (given == "bf16" and dtype == torch.float64):
        allowed = f"{describe(Precision)}, and bf16 with dtype float32 alone"
        raise BadParameters("Neural", {"precision": not_allowed("precision", given, allowed)})


@dataclasses.dataclass
class Placed:
    """A network, its samples and its loss, in the precision and on the device of a run."""

    network: FlatNetwork
    samples: ClientData
    pipeline: Pipeline | None
    precision: Precision
    compiled: bool
    objective: LocalLoss = CrossEntropy()  # noqa: RUF009
    scoring: Scoring = ClassScoring(0)  # noqa: RUF009
    mlp: MLPGradient | None = None
    """The gradient by formula, where the network and the loss have one."""
    stacked: bool = False
    """Whether the cohort's networks run as one."""
    mixes: bool = False
    """Whether the network lets the samples of a batch see one another."""
    fused: bool = False
    """Whether the network is judged with fused group norms."""
    dtype: torch.dtype = torch.float32
    device: torch.device = CPU
    records: bool = True
    """Whether gradients are captured as CUDA graphs where that can be done."""
    captured: dict[tuple[int, ...], Captured | None] = dataclasses.field(default_factory=dict)
    """CUDA graphs by the shape of a mini-batch; ``None`` where that could not be captured."""

    def to(self, dtype: torch.dtype, device: torch.device) -> Placed:
        """Elsewhere; on a GPU the products of the whole process follow its ``precision``.

        torch has one switch per process, so the problem that was placed last decides.
        """
        refuse_precision(self.precision, dtype)
        if device.type == "cuda":
            short = self.precision != "f32"
            torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = short
        # Graphs hold addresses of this device and kernels of this precision: none is taken along.
        there = dataclasses.replace(
            self,
            network=self.network.to(dtype, device),
            samples=self.samples.to(device),
            fused=False,
            dtype=dtype,
            device=device,
            captured={},
        )
        if isinstance(self.objective, OwnLoss):
            loss = there.objective = self.objective.to(dtype, device)
            there.scoring = Scoring(loss.values, self.scoring.metrics, self.scoring.counted)
        # Group norms are fused where products are rounded anyway, if that can be done.
        rounded = device.type == "cuda" and self.precision != "f32" and dtype == torch.float32
        there.fused = rounded and there.network.takes_fused(there.few().x)
        return there

    def judging(self, x: Tensor) -> Callable[[Fields], Output]:
        """The network with the weights ``x``."""
        return self.network.judging(x.detach().to(self.device, self.dtype), self.fused)

    @property
    def alone(self) -> bool:
        """Whether network and loss must see a client's samples without others or any padding."""
        return self.mixes or (isinstance(self.objective, OwnLoss) and self.objective.alone)

    @property
    def slope(self) -> Slope:
        """The derivative of the loss in the outputs, where the gradient is by formula."""
        if isinstance(self.objective, OwnLoss):
            return self.objective.slope
        return slope_of_cross_entropy

    def prepare(self, x: Fields, draws: ImageDraws[Tensor] | None = None) -> Fields:
        """Inputs as the network sees them: uint8 are images, which are scaled."""
        if not isinstance(x, Tensor):
            return mapped(self._plain, x)
        if self.pipeline is None:
            x = self._plain(x)
        elif draws is None:
            x = self.pipeline.normalise(x, self.dtype)
        else:
            x = self.pipeline(x, draws, self.dtype)
        return self.network.arranged(x)

    def prepared(self, rows: SampleRows) -> SampleRows:
        """Samples as the network and the loss see them, none augmented."""
        return SampleRows(self.prepare(rows.x), mapped(self.aimed, rows.y))

    def number(self, v: Tensor) -> Tensor:
        """Floating point in the precision of the run, whole numbers as torch indexes with them."""
        if v.dtype in INDICES:
            return v
        return v.to(self.dtype) if v.is_floating_point() else v.long()

    def aimed(self, v: Tensor) -> Tensor:
        """Targets as losses take them."""
        return v.long() if v.dtype == torch.int32 else self.number(v)

    def _plain(self, v: Tensor) -> Tensor:
        if v.dtype != torch.uint8:
            return self.number(v)
        return v.to(self.dtype).mul_(1 / 255)  # a division takes three times as long

    def counts(self, samples: Tensor) -> Tensor | None:
        """How much each of these samples counts in a mean of the loss; ``None`` where all do alike.

        A mean of means is not the mean of all where classes have weights or targets are ignored.
        """
        counted, y = getattr(self.objective, "counted", None), self.samples.train.y
        if counted is None or not isinstance(y, Tensor):
            return None
        targets = y.index_select(0, samples.reshape(-1).to(y.device)).to(self.device)
        found: Tensor = counted.counts(targets).view(samples.shape)
        return found

    def few(self, test: bool = False) -> SampleRows:
        """Eight samples from all over a table, or as many as there are, for a trial."""
        table = self.samples.test if test and self.samples.test else self.samples.train
        size = count(table.x)
        numbers = torch.arange(0, size, max(size // 8, 1), device=self.device)[:8]
        return self.prepared(table.take(numbers))

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

    x: Fields
    labels: Fields
    weights: Tensor
    start: Tensor | None = None
    previous: Tensor | None = None
    label_counts: Tensor | None = None
    key: Tensor | None = None

    def rows(self, which: int | Tensor) -> Arguments:
        """Those of one client, or of some."""
        return Arguments(*(None if a is None else mapped(lambda v: v[which], a) for a in self))  # type: ignore[arg-type]

    def unpadded(self) -> Arguments:
        """One client's without the samples that have no weight."""
        kept = self.weights > 0
        x, labels = (mapped(lambda v: v[kept], part) for part in (self.x, self.labels))
        return self._replace(x=x, labels=labels, weights=self.weights[kept])

    def flat(self) -> tuple[Tensor | None, ...]:
        """Every tensor by itself, as recordings take them."""
        return (*tree_leaves(self.x), *tree_leaves(self.labels), *self[2:])

    def like(self, flat: Sequence[Tensor | None]) -> Arguments:
        """Arguments of the same structure from what is :meth:`flat`."""
        given = iter(flat)
        x, labels = (mapped(lambda _: next(given), part) for part in (self.x, self.labels))  # type: ignore[arg-type,return-value]
        return Arguments(x, labels, *given)  # type: ignore[arg-type]


class NeuralOracle(Oracle):
    """Gradients for all clients at once or one after another."""

    def __init__(self, placed: Placed, parts: Sequence[np.ndarray], label_counts: Tensor | None):
        self.placed = placed
        network = placed.network
        # By rows only where a gradient is of one network at a time, and not in bf16.
        single = not placed.stacked and placed.precision != "bf16"
        by_rows = single and network.by_rows and network.channels_last
        self.net = network.own(training=True, form="rows" if by_rows else "plain")
        self.sizes = [len(part) for part in parts]
        rows = [torch.from_numpy(part) for part in parts]
        self.rows = nn.utils.rnn.pad_sequence(rows, batch_first=True).to(placed.device)
        self.needs = placed.objective.needs
        self.label_counts = label_counts
        self.start: Tensor | None = None
        self.previous: Tensor | None = None
        self._lowered = placed.precision == "bf16"

    def begin(self, start: Tensor, previous: Tensor | None) -> None:
        self.start = start.detach() if "global" in self.needs else None
        self.previous = None if previous is None else previous.detach()

    def grad(
        self,
        y: Tensor,
        batch: Tensor | None = None,
        draws: ImageDraws[Tensor] | None = None,
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
        # In this order: a recorded gradient, the formula of an MLP, automatic differentiation. bf16
        # goes past the formula, which autocast does not reach.
        inputs = self._inputs(y, batch, draws, key)
        if self._captures(batch) and (captured := self._capture(y, inputs)):
            return captured(y, inputs)
        if not self._lowered:
            return self._gradients(y, self._arguments(inputs))
        try:
            with torch.autocast(self.placed.device.type, torch.bfloat16):
                return self._differentiated(y, self._arguments(inputs))
        except torch.OutOfMemoryError:
            raise
        except RuntimeError as error:
            text = f"torch cannot run this network in bf16 here: {error}; leave out precision"
            raise BadParameters("Neural", {"precision": text}) from error

    def hessian(self, y: Tensor, v: Tensor, batch: Tensor | None = None) -> Tensor:
        """By automatic differentiation: differences would see the kinks of a ReLU as curvature."""
        if batch is None:
            places, held = torch.arange(self.rows.shape[1]), torch.tensor(self.sizes).unsqueeze(1)
            batch = torch.where(places < held, places, -1).to(y.device)
        given = self._arguments(self._inputs(y, batch))
        rows = [given.rows(c).unpadded() for c in range(len(y))]
        return torch.stack([self._one(*one) for one in zip(y, rows, v, strict=True)])

    def counts(self, batch: Tensor) -> Tensor:
        counts = self.placed.counts(self.rows.gather(-1, batch.clamp(min=0)))
        if counts is None:
            return super().counts(batch)
        return (counts * (batch >= 0)).sum(1, keepdim=True)

    def recorded(self, y: Tensor, batch: Tensor | None = None, *drawn: Any) -> Captured | None:
        if batch is None or not self.placed.compiled or not self._captures(batch):
            return None
        inputs = self._inputs(y, batch, *drawn)
        if captured := self._capture(y, inputs):
            captured.load(inputs)
        return captured

    def step_(self, y: Tensor, lr: float | Tensor, *batch: Any) -> Tensor:
        if (mlp := self._stepping) is None or not batch:
            return super().step_(y, lr, *batch)
        x, labels, weights, *_ = self._arguments(self._inputs(y, *batch))
        mlp.step_(mlp.views(y), lr, x, labels, weights, self.placed.slope)  # type: ignore[arg-type]
        return y

    def follow_(self, y: Tensor, lr: float | Tensor, batches: Iterable[MiniBatch]) -> Tensor:
        """With the samples of many steps laid out at once, where nothing augments them."""
        if (mlp := self._stepping) is None:
            return super().follow_(y, lr, batches)
        # Small steps cost more to lay out than to compute: the samples of as many steps as fit are
        # gathered by one index. Draws of an augmentation come with each step and cannot be.
        coming = iter(batches)
        for first in coming:
            ahead = 0 if len(first) > 1 else mlp.ahead(first[0].numel())
            if not (more := [batch for (batch,) in islice(coming, ahead)]):
                self.step_(y, lr, *first)
                continue
            views, slope = mlp.views(y), self.placed.slope
            given = self._arguments(self._inputs(y, torch.stack([first[0], *more])))
            for k, weights in enumerate(given.weights):
                labels = mapped(itemgetter(k), given.labels)
                mlp.step_(views, lr, given.x[k], labels, weights, slope)  # type: ignore[index]
        return y

    @property
    def _stepping(self) -> MLPGradient | None:
        """The gradient by formula, where a step can be taken without storing it."""
        # Not for losses that compare samples: the step scales weights by lr, to which their slope
        # need not be proportional. On a GPU the whole step is recorded instead.
        placed = self.placed
        slow = placed.alone or placed.device.type != "cpu" or self._lowered
        return None if slow else placed.mlp

    def loss(
        self,
        y: Tensor | Mapping[str, Tensor],
        x: Fields,
        labels: Fields,
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
        batch = Batch(x, labels, weights)  # type: ignore[arg-type]  # several: own losses only
        return self.placed.objective.loss(local, batch, others)

    def stacked_gradients(self, y: Tensor, given: Arguments) -> Tensor:
        """The clients' networks as one."""
        dims = (0, *(None if a is None else 0 for a in given))
        found: Tensor = vmap(grad(self.loss), in_dims=dims, randomness="error")(y, *given)
        return found

    def takes_vmap(self) -> bool:
        """False where torch would run one network after another anyway, and warn of that."""
        # With models to compare with, so that an objective that needs them can be tried.
        y = self.placed.network.start.to(self.placed.dtype).repeat(len(self.sizes), 1)
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
        draws: ImageDraws[Tensor] | None = None,
        key: Tensor | None = None,
    ) -> Inputs:
        # -1 marks no sample: it reads the client's first one, with weight 0.
        several = batch.dim() == 3  # steps at once, [S, C, B]
        rows = self.rows.expand(len(batch), -1, -1) if several else self.rows
        samples = rows.gather(-1, batch.clamp(min=0))
        weights = (batch >= 0).to(y.dtype)
        weights /= weights.sum(-1, keepdim=True)
        crops, flips, angles = (None, None, None) if draws is None else draws.parts
        others = self.start, self.previous, self.label_counts
        return Inputs(samples, weights, crops, flips, angles, *others, key)

    def _arguments(self, given: Inputs) -> Arguments:
        placed, draws = self.placed, None
        if given.offsets is not None and given.flips is not None and given.angles is not None:
            draws = ImageDraws(given.offsets, given.flips, given.angles)
        shape, chosen = given.samples.shape, given.samples.reshape(-1)
        x, labels = placed.samples.train.take(chosen)
        x, labels = placed.prepare(x, draws), mapped(placed.aimed, labels)
        others = given.start, given.previous, given.label_counts, given.key
        return Arguments(_folded(x, shape), _folded(labels, shape), given.weights, *others)

    def _gradients(self, y: Tensor, given: Arguments) -> Tensor:
        if (mlp := self.placed.mlp) is not None:
            return mlp.gradients(y, given.x, given.labels, given.weights, self.placed.slope)  # type: ignore[arg-type]
        return self._differentiated(y, given)

    def _differentiated(self, y: Tensor, given: Arguments) -> Tensor:
        """By automatic differentiation."""
        # Before anything is stacked: only here is it known that a row is padded.
        if self.placed.alone and not bool((whole := (given.weights > 0).all(1)).all()):
            return self._unpadded(y, given, whole)
        if len(y) == 1:
            return self._one(y[0], given.rows(0)).unsqueeze(0)
        if self.placed.stacked:
            return self.stacked_gradients(y, given)
        return torch.stack([self._one(y[c], given.rows(c)) for c in range(len(y))])

    def _unpadded(self, y: Tensor, given: Arguments, whole: Tensor) -> Tensor:
        """Each client's own samples only; those whose mini-batch is ``whole`` side by side."""
        # A loss or network that compares samples must not see padding, even with weight 0.
        found = torch.empty_like(y)
        if bool(whole.any()):
            found[whole] = self._differentiated(y[whole], given.rows(whole))
        for c in whole.logical_not().nonzero().flatten().tolist():
            found[c] = self._one(y[c], given.rows(c).unpadded())
        return found

    def _one(self, y: Tensor, given: Arguments, v: Tensor | None = None) -> Tensor:
        """One client's gradient, or the product of its Hessian with ``v``."""
        if isinstance(given.x, Tensor):
            given = given._replace(x=self.placed.network.arranged(given.x))
        with torch.enable_grad():
            leaf = y.detach().requires_grad_()
            loss, again = self.loss(leaf, *given), v is not None
            (slope,) = torch.autograd.grad(loss, leaf, create_graph=again)
            return torch.autograd.grad(slope, leaf, v)[0] if again else slope

    def _full(self, client: int, y: Tensor, key: Tensor | None) -> Tensor:
        """Over all samples, none augmented; an objective compares samples within each pass only."""
        placed, n = self.placed, self.sizes[client]
        row = slice(client, client + 1)
        start, previous, label_counts = (
            None if a is None else a[row] for a in (self.start, self.previous, self.label_counts)
        )
        every, total = self.rows[client, :n], torch.zeros_like(y)
        counts = placed.counts(every)
        if counts is None:
            counts = torch.ones(n, dtype=torch.float64)  # on the CPU: nobody waits for a GPU
        for k, samples in enumerate(torch.split(every, PASS)):
            share = float(counts[k * PASS : (k + 1) * PASS].sum() / counts.sum())
            if share == 0:  # all targets are ignored, so that the loss is no number
                continue
            rows = placed.prepared(placed.samples.train.take(samples))
            x, labels = rows.mapped(lambda v: v.unsqueeze(0))
            weights = y.new_full((1, len(samples)), 1 / len(samples))
            slice_key = None if key is None else (key + k * SLICE).unsqueeze(0)
            given = Arguments(x, labels, weights, start, previous, label_counts, slice_key)
            total += share * self._gradients(y.unsqueeze(0), given)[0]
        return total

    def _captures(self, batch: Tensor) -> bool:
        """Whether the gradient of this mini-batch may be replayed from a CUDA graph.

        No client's samples may be padded where they are seen alone.
        """
        placed = self.placed
        # A graph replays fixed kernels on fixed shapes: it can neither seed a generator from the
        # host, nor leave out the padded rows of some mini-batches.
        if placed.device.type != "cuda" or not placed.records or placed.network.draws:
            return False
        return not placed.alone or all(n % batch.shape[1] == 0 for n in self.sizes)

    def _capture(self, y: Tensor, inputs: Inputs) -> Captured | None:
        """This gradient as a CUDA graph, recorded once for every shape of mini-batch."""
        placed = self.placed
        # What is recorded depends on the shape of a mini-batch and on which inputs there are, and
        # on nothing else: their values are copied into the graph's buffers before each replay.
        key = (*inputs.samples.shape, *(given is None for given in inputs))
        if key not in placed.captured:
            # The first client's gradient, launched by itself, is what every graph is held against.
            structure = self._arguments(inputs).rows(0)
            plain, products = self._form(self.net, structure), convolutions_as_products(self.net)
            stacked = self._form(products, structure)
            with torch.autocast(placed.device.type, torch.bfloat16, enabled=self._lowered):
                launched = self._one(y[0], structure)
            placed.captured[key] = capture(
                lambda *given: self._arguments(Inputs(*given)).flat(),
                {
                    "stacked": stacked._replace(fused=self._fused(products, structure)),
                    "streams": plain._replace(fused=self._fused(self.net, structure)),
                },
                inputs,
                y,
                launched,
                compiled=placed.compiled,
                autocast=torch.bfloat16 if placed.precision == "bf16" else None,
            )
        return placed.captured[key]

    def _fused(self, net: nn.Module, structure: Arguments) -> LossForm | None:
        """The form with kernels of our own for group norms and for the products of convolutions,
        which are in bf16; ``None`` where they are for nothing.
        """
        if not (self._lowered and TRITON):
            return None
        normed = group_norms_fused(net)
        if (found := convolutions_of_clients(normed or net) or normed) is None:
            return None
        # With all convolutions but the first as kernels of our own, the cohort as one network was
        # faster wherever it was measured; beside other processes a measurement may say otherwise.
        kinds = {type(layer) for layer in found.modules() if isinstance(layer, nn.Conv2d)}
        own = {ConvOfClients} <= kinds <= {ConvOfClients, FirstConvAsMatmul}
        return self._form(found, structure, channels_last=True)._replace(fastest=own)

    def _form(self, net: nn.Module, structure: Arguments, channels_last: bool = False) -> LossForm:
        """The loss of ``net``, a copy of the network, its weights as its layers read them.

        Its other arguments are single tensors, as those of ``structure`` are one by one.
        """

        def loss(weights: Mapping[str, Tensor], *flat: Tensor | None) -> Tensor:
            return self.loss(weights, *structure.like(flat), net=net)

        return LossForm(loss, arrangement(net, self.placed.network.layout, channels_last))


def _folded(fields: Fields, shape: torch.Size) -> Fields:
    """SampleRows ``[C * B, ...]`` as ``[C, B, ...]``."""
    return mapped(lambda v: v.reshape(*shape, *v.shape[1:]), fields)
