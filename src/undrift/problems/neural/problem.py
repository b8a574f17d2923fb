"""Neural networks: any module without batch statistics, on image sets, with any local objective."""

from __future__ import annotations

import copy
import functools
import threading
import warnings
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Literal, Self

import numpy as np
import torch
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap

from undrift.core.problem import Oracle, Problem
from undrift.data.augment import Draws
from undrift.models.conv_as_matmul import with_taps
from undrift.models.dropout import SLICE, keyed
from undrift.models.layers import channels_last, pool_first
from undrift.models.layout import Spec, flatten, unflatten
from undrift.models.net import Net
from undrift.objectives.base import Batch, Objective, Others
from undrift.objectives.crossentropy import CrossEntropy
from undrift.problems.digest import digest
from undrift.problems.neural import input as neural_input
from undrift.problems.neural.cuda_graph import Captured, capture
from undrift.problems.neural.mlp_gradient import View, dense
from undrift.problems.ragged import positions

if TYPE_CHECKING:
    from undrift.data.augment import Pipeline
    from undrift.data.images import ImageSet

PASS = 512
"""Samples per forward pass where a gradient or a metric is over all of them."""
NEAR = 1_000_000
"""Weights of the clients that one core works on together: more would not stay in its cache, fewer
waste its time.
"""
FEW = 2_000_000
"""Weights of a convolutional network that is faster on a CPU with its channels last."""


class Neural(Problem):
    """f_i is the mean loss of a network on client i's samples.

    ``parts`` are the clients' sample numbers (a sample may occur twice), or masks of all samples.
    ``pipeline``
    normalises uint8 images, and augments those of mini-batches; without it they are scaled to [0,
    1]. Inputs that are
    not uint8 reach the network as they are: floating point in the precision of the run, whole
    numbers unchanged.
    ``stacked`` runs the cohort's networks as one (``torch.func.vmap``), else one after another: by
    default stacked for
    networks without convolutions that ``vmap`` takes.
    Frozen parameters stay what they are. Gradients are of the network in training mode, metrics in
    evaluation mode.

    Dropout (``nn.Dropout`` and its kin of whole channels) acts in local steps, on mini-batches and
    on all samples, by
    masks that the engine draws. Outside of them, in metrics and in gradients on all data such as
    ``f.grad(y)``, nothing
    is dropped and no sample is augmented. A network that takes chance from the generators of torch,
    NumPy or Python, or
    changes its buffers in training, is refused where a first pass shows it.

    On a CPU a few clients at a time work on one thread, on as many threads as
    ``torch.set_num_threads`` or
    OMP_NUM_THREADS say; no number depends on how many. Cross-entropy of linear layers with ReLU
    between is
    differentiated by formula, convolutions run with channels last.
    On a GPU the cohort's gradient is captured as a CUDA graph, its loss compiled unless
    ``compiled`` is false.
    ``precision`` says how its products are computed there: f32, tf32, or bf16 (weights and updates
    stay float32).
    ``training`` measures the model on the clients' samples too, not only on the test samples.
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
        precision: Literal["f32", "tf32", "bf16"] = "f32",
        compiled: bool = True,
        training: bool = False,
    ):
        neural_input.refuse_module(module)
        self.precision, self.compiled, self.training = precision, compiled, training
        self.objective = CrossEntropy() if objective is None else neural_input.objective(objective)
        self._given = copy.deepcopy(module).cpu().train(False)
        self._arranged = pool_first(copy.deepcopy(self._given))
        self._keys = keyed(self._arranged)
        self.drops = bool(self._keys)
        self.net = self._arranged
        vector, self.spec = flatten(self._arranged)
        self.dense = dense(self.net, self.spec) if type(self.objective) is CrossEntropy else None
        self._init = vector.double()
        self.data, self.pipeline, self._stacked = data, pipeline, stacked
        self.augmentation = None if pipeline is None else pipeline.augmentation
        self.remembers = "previous" in self.objective.needs
        self._x, self._y, self._test_x, self._test_y = neural_input.samples(data, pipeline)
        self.parts = positions(parts, len(self._y))
        self.clients, self.dim, self.samples = (
            len(self.parts),
            self.spec.dim,
            [len(part) for part in self.parts],
        )
        self.classes = len(data.classes)
        convolves = any(isinstance(m, nn.Conv2d) for m in self._arranged.modules())
        self._last, self._maps = False, not convolves
        self._place(torch.float32, torch.device("cpu"))
        neural_input.refuse_inside(self.net, self.objective)
        self._refuse_network()
        if self._stacked is None and self.dense is None:
            self._maps = not convolves and self._takes_vmap()
        self._last = convolves and self.dim < FEW and self._takes_channels_last()
        self._group()

    def start(self) -> Tensor:
        return self._init.clone()

    def digest(self) -> str:
        data = self.data
        images = (data.images, data.labels, data.test_images, data.test_labels)
        weights = [
            part for part in self.state_dict(self._init).values() if isinstance(part, Tensor)
        ]
        return digest(
            "neural",
            *images,
            np.concatenate(self.parts),
            self.samples,
            self.spec,
            self._init,
            *weights,
        )

    def to(self, dtype: torch.dtype, device: torch.device) -> Self:
        twin = copy.copy(self)
        twin._place(dtype, torch.device(device))
        return twin

    def module(self, x: Tensor) -> nn.Module:
        """A copy of the module as it was given, with the weights ``x [d]``: on the CPU, in
        evaluation mode.

        Its precision is its own; buffers and frozen parameters, which ``x`` does not hold, are as
        they were given.
        """
        if x.dim() != 1:
            raise ValueError(
                f"a module has the weights of one model, a vector; got a tensor of shape {list(x.shape)}"
            )
        net = copy.deepcopy(self._given)
        with torch.no_grad():
            for name, value in unflatten(x.detach(), self.spec).items():
                net.get_parameter(name).copy_(value)
        return net

    def state_dict(self, x: Tensor) -> dict[str, Any]:
        """``module(x).state_dict()``, where no two tensors share memory: tied weights are there
        under each name.
        """
        return {name: copy.deepcopy(value) for name, value in self.module(x).state_dict().items()}

    def at(self, members: np.ndarray | None = None) -> NeuralOracle:
        return NeuralOracle(self, np.arange(self.clients) if members is None else members)

    def metrics(self, x: Tensor) -> dict[str, float]:
        """On the test samples: mean cross-entropy, and the shares classified right at once and
        among the best five.

        With ``training`` also ``train_loss`` and ``train_accuracy`` of the clients' samples, each
        client counting alike
        and no sample augmented: where the objective is cross-entropy, that loss is f(x).
        """
        model = self.bound(x.detach().to(self.device, self.dtype))
        tested = self._judge(model, self._test_x, self._test_y, np.arange(len(self._test_y)))
        found = dict(zip(("loss", "accuracy", "top5"), tested, strict=True))
        if self.training:
            weights = np.repeat(1 / np.array(self.samples), self.samples)
            trained = self._judge(model, self._x, self._y, np.concatenate(self.parts), weights)
            found |= {"train_loss": trained[0], "train_accuracy": trained[1]}
        return found

    @torch.no_grad()
    def _judge(
        self,
        model: Bound,
        x: Tensor,
        y: Tensor,
        samples: np.ndarray,
        weights: np.ndarray | None = None,
    ) -> list[float]:
        """Cross-entropy, right at once and right among five: weighted means over samples."""
        weights = np.ones(len(samples)) if weights is None else weights
        total = torch.zeros(3, dtype=torch.float64, device=self.device)
        size = PASS if self.device.type == "cpu" else 10 * PASS
        passes = (torch.from_numpy(a).to(self.device).split(size) for a in (samples, weights))
        for chosen, weight in zip(*passes, strict=True):
            labels = y[chosen]
            logits = model(self.prepare(x[chosen])).double()
            loss = nn.functional.cross_entropy(logits, labels, reduction="none")
            best = logits.topk(min(5, self.classes), dim=-1).indices == labels.unsqueeze(-1)
            total += weight @ torch.stack(
                [loss, best[:, 0].double(), best.any(-1).double()], dim=-1
            )
        return (total / weights.sum()).tolist()

    def release(self) -> None:
        for captured in self._captured.values():
            if captured is not None:
                captured.release()
        self._captured.clear()

    def bound(
        self, weights: Tensor, net: nn.Module | None = None, key: Tensor | None = None
    ) -> Bound:
        """The network, or that copy of it, with these weights ``[d]``; it drops what ``key`` says,
        nothing without.
        """
        given = unflatten(weights, self.spec)
        if key is not None:
            given |= {name: key for name in self._keys}
        return Bound(self.own_net() if net is None else net, given)

    def own_net(self, training: bool = False) -> nn.Module:
        """This thread's copy of the network: to call it with other weights is to change it for a
        moment.
        """
        name = "training" if training else "judged"
        if not hasattr(self._copies, name):
            setattr(self._copies, name, copy.deepcopy(self.net).train(training))
        return getattr(self._copies, name)

    def prepare(self, images: Tensor, draws: Draws | None = None) -> Tensor:
        """Samples as the network sees them: whole numbers other than uint8 stay what they are."""
        if images.dtype != torch.uint8:
            x = images.to(self.dtype) if images.is_floating_point() else images
        elif self.pipeline is None:
            x = images.to(self.dtype).mul_(1 / 255)  # a division takes three times as long
        elif draws is None:
            x = self.pipeline.normalise(images, self.dtype)
        else:
            x = self.pipeline(images, draws, self.dtype)
        return self.arranged(x)

    def arranged(self, x: Tensor) -> Tensor:
        """The same numbers, laid out as the network is fastest with them."""
        return channels_last(x) if self._last and self.device.type == "cpu" else x

    @property
    def stacked(self) -> bool:
        return self._maps if self._stacked is None else self._stacked

    def label_counts(self, members: np.ndarray) -> Tensor:
        """``[C, classes]``"""
        labels = self._y.cpu().numpy()
        counts = [np.bincount(labels[self.parts[i]], minlength=self.classes) for i in members]
        return torch.from_numpy(np.stack(counts)).to(self.device, self.dtype)

    def _place(self, dtype: torch.dtype, device: torch.device) -> None:
        self.dtype, self.device = dtype, device
        self._x, self._y = self._x.to(device), self._y.to(device)
        self._test_x, self._test_y = self._test_x.to(device), self._test_y.to(device)
        self.net = self._arranged
        if any(True for _ in self.net.buffers()) or not all(
            p.requires_grad for p in self.net.parameters()
        ):
            self.net = copy.deepcopy(self._arranged).to(
                device, dtype
            )  # all but the weights, which come with the call
        self._copies = threading.local()
        self._group()
        self._captured: dict[tuple[int, ...], Captured | None] = {}
        if device.type == "cuda":
            torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = (
                self.precision != "f32"
            )

    def _group(self) -> None:
        self.together = None
        if self.device.type == "cpu" and not self._stacked:
            self.together = max(1, NEAR // self.dim) if self.stacked else 1

    def _few(self) -> Tensor:
        """Two samples, for a trial."""
        return self.prepare(self._x[:2].clone())

    def _refuse_network(self) -> None:
        with neural_input.repeatable():
            outputs = [self._trial(training) for training in (True, False)]
        for logits in outputs:
            neural_input.refuse_logits(logits, len(self._x[:2]), self.classes)
        neural_input.refuse_memory(self.net, self.own_net(training=True))

    @torch.no_grad()
    def _trial(self, training: bool) -> Any:
        images, key = self._few(), torch.zeros((), dtype=torch.int64) if training else None
        try:
            return self.bound(self._init.to(self.dtype), self.own_net(training), key)(images)
        except Exception as error:  # a user's module may fail in any way
            reason = str(error).partition("\n")[0]
            raise ValueError(
                f"the network does not take images of shape {list(images.shape[1:])}: {reason}"
            ) from error

    def _takes_channels_last(self) -> bool:
        """Not where it calls ``view``, nor where samples are no images."""
        images = self._few()
        try:
            with torch.no_grad():
                self.bound(self._init.to(self.dtype))(channels_last(images))
        except (RuntimeError, ValueError):
            return False
        return True

    def _takes_vmap(self) -> bool:
        """Not where torch would run one network after another all the same, and say so in a
        warning.
        """
        f = self.at(np.array([0, 0]))
        y, batch = self._init.to(self.dtype).repeat(2, 1), torch.zeros(2, 1, dtype=torch.int64)
        f.begin(y, y)
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            try:
                f.stacked_gradients(y, *f._arguments(*f._inputs(y, batch, key=batch[:, 0])))
            except Exception:  # a user's module may fail in any way
                return False
        return not any("batching rule" in str(warning.message) for warning in said)


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
        self.problem, self.net = problem, problem.own_net(training=True)
        parts = [torch.from_numpy(problem.parts[i]) for i in members]
        self.counts = [len(part) for part in parts]
        self.rows = nn.utils.rnn.pad_sequence(parts, batch_first=True).to(problem.device)
        self.needs = problem.objective.needs
        self.label_counts = problem.label_counts(members) if "label_counts" in self.needs else None
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
        draws: Draws | None = None,
        key: Tensor | None = None,
    ) -> Tensor:
        given = {"global": self.start, "previous": self.previous}
        if any(need in self.needs and model is None for need, model in given.items()):
            name = type(self.problem.objective).__name__
            raise RuntimeError(
                f"{name} compares the local model with others; give them to begin() first"
            )
        if batch is None:
            return torch.stack(
                [self._full(c, y[c], None if key is None else key[c]) for c in range(len(y))]
            )
        problem = self.problem
        inputs = self._inputs(y, batch, draws, key)
        if problem.device.type == "cuda" and (captured := self._capture(y, inputs)):
            return captured(y, inputs)
        return self._gradients(y, *self._arguments(*inputs))

    def recorded(self, y: Tensor, *batch: Any) -> Captured | None:
        there = bool(batch) and batch[0] is not None and self.problem.device.type == "cuda"
        if not (there and self.problem.compiled):
            return None
        inputs = self._inputs(y, *batch)
        if captured := self._capture(y, inputs):
            captured.load(inputs)
        return captured

    def step_(self, y: Tensor, lr: float, *batch: Any) -> Tensor:
        dense = self.problem.dense
        if dense is None or not batch or self.problem.device.type != "cpu":
            return super().step_(y, lr, *batch)
        if self._views is None or self._views[0] is not y:
            self._views = y, dense.views(y)
        dense.step_(self._views[1], lr, *self._arguments(*self._inputs(y, *batch))[:3])
        return y

    def _gradients(self, y: Tensor, *arguments: Any) -> Tensor:
        if self.problem.dense is not None:
            return self.problem.dense.gradients(y, *arguments[:3])
        if len(y) == 1:
            return self._one(y[0], *_row(arguments, 0)).unsqueeze(0)
        if self.problem.stacked:
            return self.stacked_gradients(y, *arguments)
        return torch.stack([self._one(y[c], *_row(arguments, c)) for c in range(len(y))])

    def stacked_gradients(self, y: Tensor, *arguments: Any) -> Tensor:
        """The clients' networks as one."""
        dims = tuple(None if a is None else 0 for a in arguments)
        return vmap(grad(self.loss), in_dims=(0, *dims), randomness="error")(y, *arguments)

    def _inputs(
        self, y: Tensor, batch: Tensor, draws: Draws | None = None, key: Tensor | None = None
    ) -> tuple[Any, ...]:
        """Which samples, how much they count, what the augmentation drew, the other models, and
        what is dropped.
        """
        samples = self.rows.gather(1, batch.clamp(min=0))
        weights = (batch >= 0).to(y.dtype)
        weights /= weights.sum(1, keepdim=True)
        chance = (None,) * 3 if draws is None else (draws.offsets, draws.flips, draws.angles)
        return samples, weights, *chance, *self._others, key

    def _arguments(self, samples: Tensor, weights: Tensor, *rest: Any) -> tuple[Any, ...]:
        """What ``loss`` takes beside the weights, for all clients."""
        problem, chance, others = self.problem, rest[:3], rest[3:]
        draws = None if chance[0] is None else Draws(*chance)
        chosen = samples.reshape(-1)
        x, labels = (
            problem.prepare(problem._x.index_select(0, chosen), draws),
            problem._y.index_select(0, chosen),
        )
        return x.reshape(*samples.shape, *x.shape[1:]), labels.view(samples.shape), weights, *others

    def _capture(self, y: Tensor, inputs: tuple[Any, ...]) -> Captured | None:
        """This gradient as a CUDA graph, recorded once for every shape of mini-batch."""
        problem = self.problem
        key = (*inputs[0].shape, *(given is None for given in inputs))
        if key not in problem._captured:
            autocast = torch.bfloat16 if problem.precision == "bf16" else None
            stacked = functools.partial(self.loss, net=with_taps(self.net))
            problem._captured[key] = capture(
                self._arguments,
                {"streams": self.loss, "stacked": stacked},
                inputs,
                y,
                compiled=problem.compiled,
                autocast=autocast,
            )
        return problem._captured[key]

    def loss(
        self,
        y: Tensor,
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
        """One client's loss as a function of its weights; the other models drop nothing."""
        problem, net = self.problem, self.net if net is None else net
        received, before = (None if v is None else problem.bound(v, net) for v in (start, previous))
        others = Others(received, before, label_counts)
        return problem.objective.loss(problem.bound(y, net, key), Batch(x, labels, weights), others)

    @property
    def _others(self) -> tuple[Tensor | None, ...]:
        return self.start, self.previous, self.label_counts

    def _one(self, y: Tensor, x: Tensor, *others: Any) -> Tensor:
        with torch.enable_grad():
            leaf = y.detach().requires_grad_()
            return torch.autograd.grad(self.loss(leaf, self.problem.arranged(x), *others), leaf)[0]

    def _full(self, client: int, y: Tensor, key: Tensor | None) -> Tensor:
        """Over all samples, none of them augmented; an objective that compares samples does so
        within each pass.
        """
        problem, n = self.problem, self.counts[client]
        total = torch.zeros_like(y)
        for k, samples in enumerate(self.rows[client, :n].split(PASS)):
            weights = y.new_full((len(samples),), 1 / len(samples))
            x, labels = problem.prepare(problem._x.index_select(0, samples)), problem._y[samples]
            arguments = (
                x,
                labels,
                weights,
                *_row(self._others, client),
                None if key is None else key + k * SLICE,
            )
            rows = (None if a is None else a.unsqueeze(0) for a in arguments)
            total += len(samples) / n * self._gradients(y.unsqueeze(0), *rows)[0]
        return total


def _row(arguments: Sequence[Tensor | None], client: int) -> list[Any]:
    return [None if a is None else a[client] for a in arguments]


__all__ = ["Bound", "Neural", "NeuralOracle", "Spec"]
