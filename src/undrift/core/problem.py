"""What a problem offers to engines, metrics and theory."""

from __future__ import annotations

import abc
import dataclasses
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, Protocol, Self, TypeVar

if TYPE_CHECKING:
    import numpy as np
    import torch
    from numpy.random import Generator
    from torch import Tensor

Result = TypeVar("Result")
Samples = Literal["train", "test"]
"""Samples that clients train on, or others."""
Sums = dict[str, "Tensor"]
"""Numbers of clients ``[C]`` by name."""
MiniBatch = tuple[Any, ...]
"""What a gradient takes besides the point: samples, what augmentation drew, keys."""
COLUMNS = (
    "label", "method", "seed", "round", "of", "client", "status", "note", "seconds", "drift",
    "vectors", "vectors_up", "vectors_down", "bytes_up", "bytes_down",
    "gradients", "iterations", "syncs", "left_out", "skipped",
)  # fmt: skip
"""What rows have besides metrics."""
OF_CLIENTS, OF_OWN_MODELS = "client_", "local_"
"""What the names of columns about clients begin with, and of metrics of clients' own models."""


def taken(name: str) -> str:
    """Why a metric cannot be called so; empty if it can."""
    if name in COLUMNS:
        return f"a metric cannot be called {name!r}: rows have another column of that name"
    for start, what in ((OF_CLIENTS, "clients"), (OF_OWN_MODELS, "clients' own models")):
        if name.startswith(start):
            return f"a metric cannot be called {name!r}: columns about {what} begin with {start}"
    return ""


class Unsupported(TypeError):
    """A problem lacks what a method needs; the message says what, and what to use instead."""


@dataclasses.dataclass(frozen=True)
class Constants:
    """Constants of a federation, ``None`` where a problem has none."""

    L: float | None = None
    """Smoothness of every f_i."""
    mu: float | None = None
    """Strong convexity of every f_i (0 when convex, negative when not)."""
    L_mean: float | None = None
    """Smoothness of f."""
    mu_mean: float | None = None
    """Strong convexity of f."""
    delta_A: float | None = None
    """Averaged Hessian dissimilarity."""
    delta_B: float | None = None
    """Bounded Hessian dissimilarity."""

    def decayed(self, weight_decay: float) -> Constants:
        """Those of f_i(x) + (weight_decay / 2)|x|^2."""
        names = ("L", "mu", "L_mean", "mu_mean")
        known = {name: v for name in names if (v := getattr(self, name)) is not None}
        return dataclasses.replace(self, **{name: v + weight_decay for name, v in known.items()})


CUBE_ROOT, TINY = 6.06e-06, 1e-300
"""Of the spacing of float64 at 1, the best step of a central difference; less than any length."""
SLICE = 1 << 32
"""Distance between the keys by which one step drops something in each of its slices of samples."""


class OtherNumbers(RuntimeError):
    """Compiled code does not agree, up to rounding, with the same code uncompiled."""


def apart(y: Tensor) -> Tensor:
    """``y`` with different rows, so that one client's cannot pass for another's."""
    import torch

    rows = torch.arange(y[..., 0].numel(), dtype=y.dtype, device=y.device)
    return y * (1 + 0.01 * rows.view(*y.shape[:-1], 1))


class Replayed(Protocol):
    """A graph recorded on a device."""

    def replay(self) -> None:
        """Run it once more, on what its buffers hold now."""

    def reset(self) -> None:
        """Free it."""


class Recording(Protocol):
    """A gradient recorded on a device, a function of what its buffers hold.

    It keeps vectors ``[..., d]`` in an order of its own, as ``[..., D]``, with zeros between.
    """

    y: Tensor
    """The points ``[C, D]``."""
    short: Tensor | None
    """The points in a lower precision, where the gradient reads them so."""
    outline: Tensor
    """A tensor ``[C, d]`` with the type of the points and without their memory."""
    steps: dict[Any, Any]
    """Local steps that were recorded with this gradient inside; its owner releases them with it."""
    refused: set[Any]
    """Steps that gave other numbers with it."""

    def arranged(self, v: Tensor, out: Tensor | None = None) -> Tensor:
        """``v [..., d]`` in its order, written over ``out``, another such vector, if given."""

    def restored(self, v: Tensor) -> Tensor:
        """A vector in its order as it was given."""

    def place(self, y: Tensor) -> None:
        """Make ``y``, which is arranged, the points."""

    def parts(self, z: Tensor, short: Tensor | None = None) -> list[Tensor]:
        """What the gradient at ``z [C, D]`` reads; ``short`` is ``z`` in lower precision, if known.

        This, :meth:`joined` and :meth:`norms` are compiled as parts of a step.
        """

    def norms(self, v: Tensor) -> Tensor:
        """``v.norm(dim=-1, keepdim=True)``, as fast as it can be."""

    def joined(self, parts: Sequence[Tensor]) -> Tensor:
        """The parts of a gradient as one vector ``[C, D]``."""

    def gradient(self, parts: Sequence[Tensor]) -> list[Tensor]:
        """The gradient in each of the parts for the other buffers, computed and not replayed, so
        that it can be recorded as part of something else.
        """

    def record(self, work: Callable[[], Result]) -> tuple[Replayed, Result]:
        """``work`` as a graph that shares this one's memory, with what it returned."""

    def check(self, found: Tensor, expected: Tensor) -> None:
        """Raise :class:`OtherNumbers` unless both agree up to rounding."""


class Draws(Protocol):
    """What an augmentation drew for some samples."""

    @classmethod
    def join(cls, many: Sequence[Self]) -> Self:
        """The draws of several batches, one after another."""

    def to(self, device: torch.device) -> object:
        """As tensors on ``device``, as the oracle takes them."""

    def columns(self, rows: int, which: slice) -> Self:
        """Those for some samples of each of ``rows`` mini-batches, which are equally large."""

    def batches(self, rows: int, which: Tensor) -> Self:
        """Those for all samples of some of them, as often as they are asked for."""


class Augmentation(Protocol):
    """Random changes to samples: the engine draws them, the oracle applies them."""

    def draw(self, rng: Generator, n: int) -> Draws:
        """Decide for ``n`` samples."""


NO_MINIMISER = (
    "use a convex problem such as quadratic, least-squares, logistic or softmax, or a method whose "
    "local solver is gradient descent"
)
"""What to do where clients' problems cannot be minimised exactly."""


class Oracle(abc.ABC):
    """The problems of some clients side by side; row c of every argument is the c-th client's."""

    @property
    def several(self) -> bool:
        """Whether ``grad`` takes several points of each client at once too, ``[C, T, d]``."""
        return False

    @abc.abstractmethod
    def grad(self, y: Tensor, batch: Tensor | None = None) -> Tensor:
        """Gradients ``[C, d]`` at ``y [C, d]``, on all data or on the samples ``batch [C, B]``.

        ``batch`` holds positions among each client's own samples, -1 for none. Only an oracle of a
        problem with an ``augmentation`` or one that is ``keyed`` gets more: a third argument, the
        :class:`Draws` for the C * B samples (or ``None``), and a fourth, a number ``[C]`` that
        decides what each client drops, or its noise (nothing without it).
        """

    def counts(self, batch: Tensor) -> Tensor:
        """How much each mini-batch counts in a mean over several, ``[C, 1]``: by its samples."""
        return (batch >= 0).sum(1, keepdim=True)

    def hessian(self, y: Tensor, v: Tensor, batch: Tensor | None = None) -> Tensor:
        """Products ``[C, d]`` of the clients' Hessians at ``y`` with the rows of ``v [C, d]``.

        Here that is a central difference of gradients, which wants float64 and no kinks.
        """
        size = v.norm(dim=-1, keepdim=True)
        h = CUBE_ROOT * (1 + y.norm(dim=-1, keepdim=True))
        step = h * v / size.clamp(min=TINY)
        found: Tensor = (self.grad(y + step, batch) - self.grad(y - step, batch)) * (size / h / 2)
        return found

    def step_(self, y: Tensor, lr: float | Tensor, *batch: Any) -> Tensor:
        """``y - lr * grad(y, *batch)``, written over ``y``; ``lr`` may be a column, for rows."""
        if isinstance(lr, float | int):
            return y.sub_(self.grad(y, *batch), alpha=lr)
        return y.addcmul_(self.grad(y, *batch), lr, value=-1)

    def descend_(self, y: Tensor, lr: float | Tensor, steps: Iterable[object]) -> Tensor:
        """One step ``y - lr * grad(y)`` on all data for each of ``steps``, written over ``y``."""
        for _ in steps:
            self.step_(y, lr)
        return y

    def follow_(self, y: Tensor, lr: float | Tensor, batches: Iterable[MiniBatch]) -> Tensor:
        """One step ``y - lr * grad(y, *batch)`` for each of ``batches``, written over ``y``."""
        for batch in batches:
            self.step_(y, lr, *batch)
        return y

    def recorded(self, y: Tensor, *batch: Any) -> Recording | None:
        """The recording that replays this gradient, if any, with the batch in its buffers.

        Only then is the rest of a local step worth compiling.
        """
        return None

    def begin(self, start: Tensor, previous: Tensor | None) -> None:
        """Local training starts at ``start [C, d]``; ``previous`` are the last local models.

        Called before every local training; losses that compare models keep both.
        """

    def solve(self, v: Tensor, lam: float) -> Tensor:
        """Row-wise minimisers of f_i(y) - <v, y> + (lam/2)|y|^2."""
        raise Unsupported(f"{type(self).__name__} has no exact local minimiser; {NO_MINIMISER}")


class Problem(abc.ABC):
    """f = mean of f_i over the clients, in flat coordinates."""

    clients: int
    dim: int
    samples: list[int]
    """Samples per client; mini-batches are drawn from them."""
    dtype: torch.dtype
    device: torch.device

    note: str = ""
    """A caveat printed beside every accuracy, as "JPEG q80"."""
    class_names: tuple[str, ...] = ()
    """The classes of the samples, in the order of :meth:`label_counts`."""
    columns: tuple[str, ...] = ()
    """The names of what the entries of x weigh, where they have some."""
    precision: str | None = None
    """Of matrix products on a GPU, where it can be chosen: f32, tf32 or bf16."""

    metric_samples: Samples | None = None
    """Which samples loss and accuracy of :meth:`metrics` are of; ``None`` where nobody said."""
    own_samples: Samples = "train"
    """Which of its own samples :meth:`client_metrics` judge a client by."""

    labelled: bool = False
    """Whether samples have labels, which ``with_label_noise`` can change."""
    sampled: bool = True
    """Whether clients have samples that mini-batches can be drawn from."""
    pooled: bool = False
    """Whether f is the mean loss of all samples, not the mean of the clients' mean losses."""

    keyed: bool = False
    """Whether gradients of local steps draw more than samples, as dropout or noise, by a key."""

    # What only networks use so far.

    augmentation: Augmentation | None = None
    """Random changes to the samples of mini-batches."""
    together: int | None = None
    """Clients that one thread works on at a time; ``None``: all of them, on the calling thread."""
    remembers: bool = False
    """Whether the local loss looks at a client's last local model, which the engine then keeps."""
    differentiates: bool = False
    """Whether gradients come from automatic differentiation, not from a formula."""

    def __repr__(self) -> str:
        if {"clients", "dim", "samples"} - {*dir(self)}:  # one that is not whole yet
            return object.__repr__(self)
        held = f"{sum(self.samples)} samples, " * self.sampled
        return f"{type(self).__name__}({self.clients} clients, {held}dim {self.dim})"

    @abc.abstractmethod
    def at(self, members: np.ndarray | None = None) -> Oracle:
        """The local problems of some clients (all when ``None``), their data gathered once."""

    def metrics(self, x: Tensor) -> dict[str, float]:
        """``loss`` and ``grad_norm`` of f at ``x``; ``gap`` and ``distance`` to a known optimum.

        A run refuses metrics that are called like other columns of its rows (:func:`taken`).
        """
        raise Unsupported(f"{type(self).__name__} has no metrics; define metrics")

    def client_metrics(self, x: Tensor, members: np.ndarray | None = None) -> Sums:
        """``loss`` and other metrics of some clients (all when ``None``), each on its own samples.

        ``x`` is one model ``[d]`` for all of them, or a model ``[C, d]`` for each. The numbers are
        float64 ``[C]``. ``loss`` is f_i(x), so that the mean over all clients is f(x); where f is
        ``pooled``, it is the mean loss of the client's samples, and their mean by samples is f(x).
        """
        raise Unsupported(
            f"{type(self).__name__} has no metrics of single clients; define client_metrics, or "
            "leave out per_client"
        )

    def predictions(self, x: Tensor) -> tuple[object, object]:
        """Of a network, its outputs with the weights ``x``, and the targets."""
        raise Unsupported(f"{type(self).__name__} is not a network, and has no predictions")

    def weight_of(self, metric: str) -> int:
        """How much a metric of a client that has a problem of its own, as in a federation, counts
        in the mean of all clients'.
        """
        return 1 if metric == "loss" and not self.pooled else sum(self.samples)

    def pieces(self, x: Tensor, part: int = 0, parts: int = 1) -> Tensor | None:
        """One of ``parts`` shares of the pieces ``[P, k]`` that metrics at ``x`` are sums of.

        All shares, one after another, are the same pieces however many shares there are, so that
        several processes can compute them. ``None`` where that is not worth it.
        """
        return None

    def of_pieces(self, pieces: Tensor, x: Tensor) -> dict[str, float]:
        """The :meth:`metrics` at ``x``, bit for bit, from all its pieces."""
        raise Unsupported(f"{type(self).__name__} does not measure in pieces")

    @abc.abstractmethod
    def to(self, dtype: torch.dtype, device: torch.device) -> Self:
        """The same problem in another precision or on another device."""

    def refuse_overflow(self) -> None:
        """Raise ``ValueError`` where data are finite, but not in the precision of the run."""

    def among(self, clients: int, total: int) -> Self:
        """A problem of one client as it is among so many, who hold ``total`` samples together."""
        return self

    def release(self) -> None:
        """Free what was recorded on a device; later gradients record it again."""

    def plain(self) -> Problem | None:
        """The same with nothing recorded or compiled on a device; ``None`` where nothing is."""
        return None

    @property
    def minimises(self) -> bool:
        """Whether the regularised problem of a client can be minimised exactly."""
        import numpy as np

        return type(self.at(np.array([0]))).solve is not Oracle.solve

    @property
    def constants(self) -> Constants:
        return Constants()

    @property
    def cheap_constants(self) -> Constants:
        """The constants, or where the deltas take long to find, all but these."""
        return self.constants

    @property
    def optimum(self) -> Tensor | None:
        """The minimiser x* ``[d]`` in float64, or ``None`` where it is not known."""
        return None

    def label_counts(self, members: np.ndarray | None = None) -> Tensor | None:
        """Samples of each class, ``[C, classes]``; ``None`` where samples have no classes."""
        return None

    def with_label_noise(self, noise: Mapping[int, np.ndarray]) -> Self:
        """A copy in which some clients' training samples are labelled as other classes.

        ``noise`` has for each sample of a client a number from 0 to 1 that decides the other class,
        or a negative one where its label stays. This problem and its data are left alone.
        """
        raise Unsupported(f"{type(self).__name__} has no labels that could be wrong")

    def tensors(self, x: Tensor) -> dict[str, Tensor]:
        """The model ``x`` by the names of its tensors, as it is exported."""
        return {"x": x}

    def digest(self) -> str | None:
        """The SHA-256 of data, partition and first point; ``None`` where that is not known."""
        return None

    def choices(self) -> Mapping[str, object]:
        """What decides its numbers besides data and first point, such as its loss, by name."""
        return {}

    def start(self) -> Tensor:
        """The default first point."""
        import torch

        return torch.zeros(self.dim, dtype=torch.float64)

    @property
    def facts(self) -> Facts:
        """What a server may know of it, without its data.

        Without the constants, which may take long: ``dataclasses.replace`` adds them.
        """
        return Facts(
            clients=self.clients,
            dim=self.dim,
            samples=tuple(self.samples),
            dtype=self.dtype,
            device=self.device,
            remembers=self.remembers,
            differentiates=self.differentiates,
            first=self.start(),
        )


@dataclasses.dataclass(frozen=True, kw_only=True)
class Facts:
    """What is known of a problem where its data are elsewhere; names are those of ``Problem``."""

    clients: int
    dim: int
    samples: tuple[int, ...]
    dtype: torch.dtype
    device: torch.device
    remembers: bool
    differentiates: bool
    first: Tensor = dataclasses.field(repr=False, compare=False)
    constants: Constants | None = None
    """``None`` where nobody computed them."""

    def start(self) -> Tensor:
        """The default first point."""
        return self.first
