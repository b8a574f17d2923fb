"""Problems by name: the parameters of each and what it is made of. Imports no torch, no NumPy."""

from __future__ import annotations

import dataclasses
import math
import os
from collections.abc import Callable, Collection, Mapping
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self, dataclass_transform

from undrift.core.params import (
    BadParameters,
    Count,
    Fraction,
    Natural,
    NonNegative,
    Positive,
    check,
    hints,
    unknown,
)

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray
    from torch import nn

    from undrift.core.problem import Problem
    from undrift.data.images import ImageSet
    from undrift.data.partition import Parts
    from undrift.objectives import Objective
    from undrift.problems.least_squares import LeastSquares
    from undrift.problems.logistic import Logistic
    from undrift.problems.neural.problem import Neural
    from undrift.problems.quadratic import Quadratic
    from undrift.problems.softmax import Softmax

Split = Literal["iid", "dirichlet", "dirichlet-balanced", "by-label"]
Model = Literal["linear", "mlp", "cnn", "cnn-paper", "cnn-small", "resnet18", "resnet18-3x3"]

registry: dict[str, type[Named]] = {}
"""Every named problem, in the order of this file."""


@dataclass_transform(frozen_default=True, kw_only_default=True)
class Named:
    """The parameters of a named problem; subclasses become frozen dataclasses and are registered.

    Args:
        clients: the number of clients.
        seed: decides all that is drawn.
    """

    name: ClassVar[str]
    title: ClassVar[str]
    objectives: ClassVar[bool] = False
    """Whether the local loss can be chosen."""
    judged: ClassVar[Literal["gap", "accuracy"] | None] = "gap"
    """The metric that targets are set for, if that is known before the problem is built."""
    chance: ClassVar[Mapping[str, str]] = {"split": "data"}
    """What a seed can decide, in words: the ``split`` (or the data), the ``start``."""
    held: ClassVar[tuple[str, ...]] = ()
    """The parameters whose product is the count of numbers that a client holds."""

    clients: int
    seed: int
    precision: str | None = None
    """Of matrix products on a GPU, where it can be chosen."""

    def __init_subclass__(cls, *, register: bool = True, **kwargs: object) -> None:
        super().__init_subclass__(**kwargs)
        dataclasses.dataclass(frozen=True, kw_only=True)(cls)
        if register:
            registry[cls.name] = cls

    def __post_init__(self) -> None:
        if problems := check(self.name, type(self), vars(self)) or self.conditions():
            raise BadParameters(self.name, problems)

    def conditions(self) -> dict[str, str]:
        """Field -> what is wrong with it, given the others."""
        return {}

    def build(self, objective: Objective | None = None) -> Problem:
        """The problem itself, with this local loss where :attr:`objectives` is true."""
        if objective is not None:
            text = f"{self.name} has a loss of its own: leave out objective"
            raise BadParameters(self.name, {"objective": text})
        return self.make()

    def make(self) -> Problem:
        """The problem with the loss that it has of its own."""
        raise NotImplementedError

    def drawn(self, what: Collection[str], seed: int) -> Self:
        """The same with ``what`` of :attr:`chance` drawn from ``seed``."""
        return dataclasses.replace(self, seed=seed) if "split" in what else self  # type: ignore[type-var]

    def fixed(self, what: str) -> str:
        """Why no seed can decide ``what``; empty if one can."""
        return "" if what in self.chance else f"{self.name} always starts at zero"

    @property
    def least_bytes(self) -> int:
        """A lower bound on its memory, as far as that follows from its parameters."""
        sizes: list[int] = [getattr(self, name) for name in self.held]
        return 8 * self.clients * math.prod(sizes)


class RandomQuadratic(Named):
    """Dense Hessians with eigenvalues in [mu, L] and centres around a common one.

    Whatever the heterogeneity, the eigenvalues reach mu and L (in two or more dimensions).

    Args:
        dim: coordinates of x.
        mu: eigenvalues of the Hessians are at least this.
        L: eigenvalues of the Hessians are at most this.
        heterogeneity: from 0, equal Hessians, to 1, independent ones.
        spread: standard deviation of the clients' minimisers; with heterogeneity 0 and spread 0 all
            are the same.
    """

    name = "quadratic"
    title = "random quadratics with different dense Hessians and centres"
    held = ("dim", "dim")

    clients: Count = 20
    dim: Count = 10
    mu: NonNegative = 1.0
    L: Positive = 10.0
    heterogeneity: Fraction = 1.0
    spread: NonNegative = 1.0
    seed: Natural = 0

    def conditions(self) -> dict[str, str]:
        if self.mu <= self.L:
            return {}
        text = f"mu = {self.mu:g} exceeds L = {self.L:g}; eigenvalues are drawn between them"
        return {"mu": text}

    def make(self) -> Quadratic:
        import numpy as np

        from undrift.problems.quadratic import Quadratic

        rng, (n, d) = np.random.default_rng(self.seed), (self.clients, self.dim)
        basis, _ = np.linalg.qr(rng.standard_normal((n + 1, d, d)))
        place = rng.random((n + 1, 1, d))
        if d > 1:
            place[..., 0], place[..., -1] = 0, 1
        H = (basis * (self.mu + (self.L - self.mu) * place)) @ basis.swapaxes(1, 2)
        A = (1 - self.heterogeneity) * H[:1] + self.heterogeneity * H[1:]
        b = rng.standard_normal(d) + self.spread * rng.standard_normal((n, d))
        return Quadratic.centred((A + A.swapaxes(1, 2)) / 2, b)


class FedRedQuadratic(Named):
    """Diagonal A_ij of norm 100 whose means differ by about 5 between clients.

    In a convex one up to 20 eigenvalues fall geometrically towards 0 and half of them are 0. In a
    nonconvex one the mean of the A_ij is positive, or f would have no lower bound, and beta = 400.

    Args:
        kind: strong: eigenvalues from 1 to 100; convex: some of each component's are 0; nonconvex:
            some components have negative ones.
        components: quadratics of each client, whose function is their mean.
        dim: coordinates of x.
    """

    name = "fedred"
    title = "the synthetic instance of DANE+ and FedRed: similar diagonal Hessians"
    held = ("components", "dim")

    kind: Literal["strong", "convex", "nonconvex"] = "strong"
    clients: Count = 5
    components: Count = 10
    dim: Count = 1000
    seed: Natural = 0

    def conditions(self) -> dict[str, str]:
        if self.dim > 1:
            return {}
        text = "dim = 1 is not allowed: the smallest and the largest eigenvalue need two dimensions"
        return {"dim": text}

    def make(self) -> Quadratic:
        import numpy as np

        from undrift.problems.quadratic import Quadratic

        rng = np.random.default_rng(self.seed)
        shape = (self.clients, self.components, self.dim)
        common, noise = 110 * rng.random(self.dim), 18 * rng.random(shape)
        common[-1] = 110
        if self.kind == "nonconvex":
            A = np.minimum(np.maximum(common, 5) + noise - 9, 100)
        else:
            if self.kind == "strong":
                common[0] = -18
            A = np.clip(common + noise, 1, 100)
        if self.kind == "convex":
            few = np.arange(min(20, self.dim - 1))
            kept = rng.integers(2, size=(*shape[:2], len(few)))
            A[..., few] *= kept * 2.0 ** (few - 20) / A[..., few].mean((0, 1))
        b = 10 * rng.random(A.shape)
        return Quadratic.centred(A, b, beta=400.0 if self.kind == "nonconvex" else 0.0)


class FedCETQuadratic(Named):
    r""":math:`f_i(x) = \frac1{n_i}\sum_j\|M_ix-b_{ij}\|^2+\|x\|^2`, b uniform on [-10, 10].

    Equal Hessians have M_i = I, L = mu = 4 and x* = mean(b)/2; the mean iterate is plain gradient
    descent. Different ones have Gaussian M_i, mu about 2 and L about 10.

    Args:
        hessians: equal, as in the paper, where there is no drift; or different, where there is.
        samples: measurements of each client.
        dim: coordinates of x.
    """

    name = "fedcet"
    title = "FedCET's estimation problem, with equal or different Hessians"
    held = ("samples", "dim")

    hessians: Literal["equal", "different"] = "equal"
    clients: Count = 10
    samples: Count = 10
    dim: Count = 60
    seed: Natural = 0

    def make(self) -> Quadratic:
        import numpy as np

        from undrift.problems.quadratic import Quadratic

        rng, (n, d) = np.random.default_rng(self.seed), (self.clients, self.dim)
        b = rng.uniform(-10, 10, (n, self.samples, d))
        c = (b * b).sum(-1)
        if self.hessians == "equal":
            return Quadratic(np.full_like(b, 4), 2 * b, c)
        M = rng.standard_normal((n, d, d)) / np.sqrt(d)
        H = 2 * (M.swapaxes(1, 2) @ M + np.eye(d))
        return Quadratic(np.repeat(H[:, None], self.samples, axis=1), 2 * b @ M, c)


class RandomLeastSquares(Named):
    """Entries uniform on [0, 1].

    Args:
        rows: equations of each client.
        dim: coordinates of x.
    """

    name = "least-squares"
    title = "FedRecu's least squares with uniform random entries"
    held = ("rows", "dim")

    clients: Count = 20
    rows: Count = 50
    dim: Count = 10
    seed: Natural = 0

    def make(self) -> LeastSquares:
        import numpy as np

        from undrift.problems.least_squares import LeastSquares

        rng, shape = np.random.default_rng(self.seed), (self.clients, self.rows)
        return LeastSquares(rng.random((*shape, self.dim)), rng.random(shape))


class LogisticRegression(Named):
    """Logistic regression on a data set that is split among the clients.

    Args:
        data: a set that is embedded, such as breast-cancer, or an svmlight file in the folder.
        folder: the folder of data sets; left out: $UNDRIFT_DATA.
        partition: how the samples are split among the clients.
        beta: concentration of the Dirichlet partitions: smaller is more uneven.
        shards: pieces per client of the samples sorted by label, where they are split by-label.
        l2: weight of |x|^2 / 2; left out: one over the number of all samples.
    """

    name = "logistic"
    title = "regularised logistic regression on a binary data set"
    chance: ClassVar[Mapping[str, str]] = {"split": "split"}

    data: str = "breast-cancer"
    folder: str | None = None
    clients: Count = 10
    partition: Split = "dirichlet"
    beta: Positive = 1.0
    shards: Count = 2
    l2: NonNegative | None = None
    seed: Natural = 0

    def make(self) -> Logistic:
        from undrift.data.tables import load
        from undrift.problems.logistic import Logistic

        table = load(self.data, self.folder)
        parts = _split(self, table.labels, self.seed)
        return Logistic(table.features, table.labels, parts, self.l2)

    def fixed(self, what: str) -> str:
        return super().fixed(what) or _whole(self, what)


class SyntheticSoftmax(Named):
    """Samples labelled by a softmax model of each client's own, after FedProx.

    Client k's weights and bias for class c are from N(u_kc, 1), its features from
    N(v_k, diag(j^-1.2)), the entries of v_k from N(B_k, 1); u_kc has standard deviation alpha and
    B_k beta. FedProx's code has one u_k for all classes, which changes no label: a softmax ignores
    what all classes share. Clients of lognormal sizes have exp(N(4, 2^2)) samples more, as in that
    code. Features are rounded to float32.

    Args:
        samples: samples of each client.
        features: features of a sample.
        classes: labels that a sample may have.
        alpha: how much the clients' models differ.
        beta: how much their features differ.
        sizes: equal: all have as many samples; lognormal: some have many more, as in FedProx's
            code.
        l2: weight of |x|^2 / 2; left out: one over the number of all samples.
    """

    name = "softmax-synthetic"
    title = "FedProx's Synthetic(alpha, beta): softmax regression, a model per client"
    held = ("samples", "features")

    clients: Count = 30
    samples: Count = 50
    features: Count = 60
    classes: Count = 10
    alpha: NonNegative = 1.0
    beta: NonNegative = 1.0
    sizes: Literal["equal", "lognormal"] = "equal"
    l2: NonNegative | None = None
    seed: Natural = 0

    def make(self) -> Softmax:
        from concurrent.futures import ThreadPoolExecutor

        import numpy as np

        from undrift.problems.softmax import Softmax

        counts = np.full(self.clients, self.samples)
        if self.sizes == "lognormal":
            rng = np.random.default_rng(self.seed)
            counts += rng.lognormal(4, 2, self.clients).astype(np.int64)
        ends = np.cumsum(counts)
        x = np.empty((ends[-1], self.features), dtype=np.float32)
        labels = np.empty(ends[-1], dtype=np.int64)

        def fill(start: int) -> None:
            sizes = counts[start : start + 500]
            first = ends[start] - sizes[0]
            mine = slice(first, first + sizes.sum())
            self._samples(start, sizes, x[mine], labels[mine])

        with ThreadPoolExecutor(os.cpu_count()) as pool:
            list(pool.map(fill, range(0, self.clients, 500)))
        return Softmax(x, labels, np.split(np.arange(ends[-1]), ends[:-1]), self.l2, self.classes)

    def _samples(
        self,
        first: int,
        sizes: NDArray[np.int64],
        x: NDArray[np.float32],
        labels: NDArray[np.int64],
    ) -> None:
        """Fill in the samples of the clients from ``first`` on, which have ``sizes``."""
        import numpy as np

        rng, n = np.random.default_rng((self.seed, first)), len(sizes)
        u = self.alpha * rng.standard_normal((n, 1, self.classes))
        B = self.beta * rng.standard_normal((n, 1))
        models = u + rng.standard_normal((n, self.features + 1, self.classes))
        centres = B + rng.standard_normal((n, self.features))
        rng.standard_normal(dtype=np.float32, out=x)
        x *= np.arange(1, self.features + 1, dtype=np.float32) ** -0.6
        x += np.repeat(centres.astype(np.float32), sizes, axis=0)
        rows = np.split(x.astype(np.float64), np.cumsum(sizes)[:-1])
        scores = [a @ model[:-1] + model[-1] for a, model in zip(rows, models, strict=True)]
        labels[:] = np.concatenate(scores).argmax(1)


class Images(Named):
    """Classification of images by a network.

    Args:
        data: digits, which is embedded, cifar10, cifar100, mnist, tiny-imagenet, or a sub-folder
            with images by class.
        folder: the folder of data sets; left out: $UNDRIFT_DATA.
        train: keeps so many training images.
        test: keeps so many test images.
        model: the network.
        hidden: width of the hidden layers of mlp and cnn-small.
        projection: adds MOON's projection head to the network: true, to 256 features, or how many.
        partition: how the images are split among the clients; a paper's name: as in its code.
        beta: concentration of the Dirichlet partitions: smaller is more uneven.
        shards: pieces per client of the images sorted by label, where they are split by-label.
        augment: crops and flips of training images, as in a paper's code.
        precision: of products in the gradients of mini-batches; tf32 is for GPUs. Weights and
            updates stay float32.
        training: measures loss and accuracy on the clients' images too.
        seed: decides the split and the first weights.
        split_seed: decides the split; left out: seed does.
        start_seed: decides the first weights; left out: seed does.
    """

    name = "images"
    title = "a neural network on images: digits, MNIST, CIFAR, Tiny-ImageNet or a folder"
    objectives = True
    judged: ClassVar[Literal["gap", "accuracy"] | None] = "accuracy"
    chance: ClassVar[Mapping[str, str]] = {"split": "split", "start": "first weights"}
    own_network: ClassVar[Callable[..., object] | None] = None
    """Makes a network of the user's from what it takes of the data: see ``_network``."""
    own_data: ClassVar[Callable[..., object] | None] = None
    """Makes data of the user's."""

    data: str = "digits"
    folder: str | None = None
    train: Count | None = None
    test: Count | None = None
    model: Model = "cnn-small"
    hidden: Count | None = None
    projection: bool | Count = False
    clients: Count = 20
    partition: Literal[Split, "fedspeed", "feddyn", "fedacg", "fedrecu"] = "dirichlet"
    beta: Positive = 0.6
    shards: Count = 2
    augment: Literal["none", "fedspeed", "fedacg", "fedrecu"] = "none"
    precision: Literal["f32", "tf32", "bf16"] = "f32"
    training: bool = False
    seed: Natural = 0
    split_seed: Natural | None = None
    start_seed: Natural | None = None

    def conditions(self) -> dict[str, str]:
        problems = {}
        if self.hidden is not None and self.model not in ("mlp", "cnn-small"):
            text = f"is for mlp and cnn-small; leave it out for {self.model}"
            problems["hidden"] = f"hidden = {self.hidden} {text}"
        if self.augment != "none" and self.data not in ("cifar10", "cifar100", "tiny-imagenet"):
            text = f"is made for cifar10, cifar100 and tiny-imagenet; leave it out for {self.data}"
            problems["augment"] = f"augment = {self.augment!r} {text}"
        if self.own_network and self.projection:
            text = f"is for the networks of undrift; leave it out for {self.model}"
            problems["projection"] = f"projection {text}"
        for name in ("folder", "train", "test") if self.own_data else ():
            if getattr(self, name) is not None:
                problems[name] = f"{name} is for the data sets of undrift; leave it out"
        return problems

    def drawn(self, what: Collection[str], seed: int) -> Self:
        split = seed if "split" in what else self.split_seed
        start = seed if "start" in what else self.start_seed
        return dataclasses.replace(self, split_seed=split, start_seed=start)

    def fixed(self, what: str) -> str:
        return _whole(self, what)

    def build(self, objective: Objective | None = None) -> Neural:
        from undrift.data.augment import presets
        from undrift.problems.neural.problem import Neural

        images = self._images()
        split = self.seed if self.split_seed is None else self.split_seed
        return Neural(
            self._network(images),
            images,
            _split(self, images.labels.numpy(), split),
            pipeline=None if self.augment == "none" else presets[self.augment](self.data),
            objective=objective,
            precision=self.precision,
            training=self.training,
        )

    def _network(self, images: ImageSet) -> nn.Module:
        from torch import nn

        from undrift.models import build, with_projection
        from undrift.models.net import seeded

        start = self.seed if self.start_seed is None else self.start_seed
        shape = tuple(images.images.shape[1:])
        if self.own_network:
            about: dict[str, object] = {"shape": shape, "classes": len(images.classes)}
            if len(shape) == 3:
                about |= {"channels": shape[0], "size": shape[1]}
            with seeded(start):
                made = type(self).own_network(**about)  # type: ignore[misc]
            if not isinstance(made, nn.Module):
                raise TypeError(f"{self.model} gives a {type(made).__name__}, not an nn.Module")
            return made
        if len(shape) != 3 or shape[1] != shape[2]:
            sizes = " x ".join(map(str, shape[-2:]))
            text = f"the networks here take square images; those of {self.data} are {sizes}"
            raise BadParameters(self.name, {"data": text})
        channels, height, width = shape
        options: dict[str, object] = {}
        if self.hidden:
            options["hidden"] = (self.hidden,) * 2 if self.model == "mlp" else self.hidden
        if self.model == "resnet18-3x3":
            options["init"] = "torch"  # FedACG's code leaves torch's own initialisation
        net = build(self.model, channels, height, len(images.classes), seed=start, **options)
        if self.projection:
            width = 256 if self.projection is True else self.projection
            net = with_projection(net, width, seed=start)
        return net

    def _images(self) -> ImageSet:
        from undrift.data.images import load_images

        if self.own_data:
            from undrift.models.net import seeded

            with seeded(0):
                return _as_images(type(self).own_data(), self.data)  # type: ignore[misc]
        if self.train and self.test:
            return load_images(self.data, self.folder, (self.train, self.test))
        images = load_images(self.data, self.folder)
        if not (self.train or self.test):
            return images
        sizes = self.train or len(images.labels), self.test or len(images.test_labels)
        return load_images(self.data, self.folder, sizes)


def _as_images(found: Any, name: str) -> ImageSet:
    """Data of the user's: an image set, or the training and the test samples with their labels."""
    import torch

    from undrift.data.images import ImageSet

    if isinstance(found, ImageSet):
        return found
    try:
        train, test = found
        x, y = map(torch.as_tensor, train)
        test_x, test_y = map(torch.as_tensor, test)
    except (TypeError, ValueError, RuntimeError):
        kind = type(found).__name__
        raise TypeError(
            f"{name} gives a {kind}: an undrift.data.ImageSet, or (inputs, labels), (test inputs, "
            "test labels)"
        ) from None
    if y.is_floating_point() or test_y.is_floating_point():
        raise TypeError(f"{name} gives labels that are {y.dtype}: whole numbers, from 0 on")
    classes = tuple(map(str, range(1 + int(max(y.max(), test_y.max())))))
    return ImageSet(x, y.long(), test_x, test_y.long(), classes, name)


def _whole(problem: LogisticRegression | Images, what: str) -> str:
    """Why there is no split to vary; empty if there is one."""
    return "a single client holds all samples" if what == "split" and problem.clients == 1 else ""


def _split(problem: LogisticRegression | Images, labels: NDArray[np.generic], seed: int) -> Parts:
    from undrift.core.streams import Streams
    from undrift.data import paper_partitions, partition

    rng, n = Streams(seed).at("data"), problem.clients
    if problem.partition == "iid":
        return partition.iid(labels, n, rng)
    if problem.partition == "by-label":
        return partition.by_label(labels, n, rng, shards=problem.shards)
    by_dirichlet: dict[str, Callable[..., Parts]] = {
        "dirichlet": partition.dirichlet,
        "dirichlet-balanced": partition.dirichlet_balanced,
        "fedspeed": paper_partitions.fedspeed,
        "feddyn": paper_partitions.feddyn,
        "fedacg": paper_partitions.fedacg,
        "fedrecu": paper_partitions.fedrecu,
    }
    return by_dirichlet[problem.partition](labels, n, rng, beta=problem.beta)


def find(name: str) -> tuple[type[Named], dict[str, object]]:
    """The problem of a name and the parameters that the name sets.

    ``logistic-a9a`` is ``logistic`` with ``data = "a9a"``.

    >>> find("images-cifar10")[1]
    {'data': 'cifar10'}
    """
    if name in registry:
        return registry[name], {}
    kind, _, data = name.partition("-")
    of_sets = [name for name, kind in registry.items() if "data" in hints(kind)]
    if data and kind in of_sets:
        return registry[kind], {"data": data}
    raise ValueError(
        unknown("problem", name, [*registry, *(f"{name}-DATASET" for name in of_sets)])
    )


def build(name: str, **parameters: object) -> Problem:
    """A problem by name, with the parameters that differ from its defaults."""
    return made(name, **parameters).build()


def made(name: str, **parameters: object) -> Named:
    """The parameters of a problem by name, checked."""
    kind, preset = find(name)
    values = preset | parameters
    if problems := check(name, kind, values):
        raise BadParameters(name, problems)
    make: Callable[..., Named] = kind
    return make(**values)
