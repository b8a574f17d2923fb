"""Problems by name. Importing it costs nothing: no torch, no NumPy."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self

from undrift.core.params import (
    BadParameters,
    Count,
    Fraction,
    Natural,
    NonNegative,
    Positive,
    check,
    unknown,
)

if TYPE_CHECKING:
    from undrift.core.problem import Problem
    from undrift.data.partition import Parts
    from undrift.objectives import Objective
    from undrift.problems.neural.problem import Neural


class Named:
    """The parameters of a named problem.

    clients  how many there are
    seed     decides all that is drawn
    """

    name: ClassVar[str]
    title: ClassVar[str]
    chance: ClassVar[Mapping[str, str]] = {"split": "data"}
    """What a seed can decide, in words: the ``split`` among the clients (or the drawn data), the
    ``start``.
    """
    held: ClassVar[tuple[str, ...]] = ()
    """The parameters that the numbers a client holds are the product of."""

    def __post_init__(self) -> None:
        if problems := check(self.name, type(self), self._values()):
            raise BadParameters(self.name, problems)

    def build(self) -> Problem:
        """The problem itself."""
        raise NotImplementedError

    def drawn(self, what: Collection[str], seed: int) -> Self:
        """The same with ``what`` of :attr:`chance` drawn from ``seed``."""
        return dataclasses.replace(self, seed=seed) if "split" in what else self  # type: ignore[type-var]

    def fixed(self, what: str) -> str:
        """Why no seed can decide ``what``; empty if one can."""
        return "" if what in self.chance else f"{self.name} always starts at zero"

    @property
    def least_bytes(self) -> int:
        """What it holds in memory at the least, as far as that follows from its parameters."""
        sizes = [getattr(self, name) for name in self.held]
        return 8 * getattr(self, "clients", 0) * math.prod(sizes)

    def _values(self) -> dict[str, Any]:
        return {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}  # type: ignore[arg-type]


@dataclasses.dataclass(frozen=True)
class RandomQuadratic(Named):
    """
    dim            coordinates of x
    mu             eigenvalues of the Hessians are at least this
    L              and at most this
    heterogeneity  from 0, equal Hessians, to 1, independent ones
    spread         standard deviation of the clients' minimisers; with heterogeneity 0 and spread 0
                   all are the same
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

    def build(self) -> Problem:
        from undrift.problems.synthetic import random_quadratic

        return random_quadratic(**self._values())


@dataclasses.dataclass(frozen=True)
class FedRedQuadratic(Named):
    """
    kind        strong: eigenvalues from 1 to 100; convex: some of each component's are 0;
                nonconvex: some components
                have negative ones
    components  quadratics whose mean a client's function is
    dim         coordinates of x
    """

    name = "fedred"
    title = "the synthetic instance of DANE+ and FedRed: similar diagonal Hessians"
    held = ("components", "dim")

    kind: Literal["strong", "convex", "nonconvex"] = "strong"
    clients: Count = 5
    components: Count = 10
    dim: Count = 1000
    seed: Natural = 0

    def build(self) -> Problem:
        from undrift.problems.synthetic import fedred_quadratic

        return fedred_quadratic(**self._values())


@dataclasses.dataclass(frozen=True)
class FedCETQuadratic(Named):
    """
    hessians  equal, as in the paper, where there is no drift; or different, where there is
    samples   measurements of each client
    dim       coordinates of x
    """

    name = "fedcet"
    title = "FedCET's estimation problem, with equal or different Hessians"
    held = ("samples", "dim")

    hessians: Literal["equal", "different"] = "equal"
    clients: Count = 10
    samples: Count = 10
    dim: Count = 60
    seed: Natural = 0

    def build(self) -> Problem:
        from undrift.problems.synthetic import fedcet_quadratic

        return fedcet_quadratic(**self._values())


@dataclasses.dataclass(frozen=True)
class RandomLeastSquares(Named):
    """
    rows  equations of each client
    dim   coordinates of x
    """

    name = "least-squares"
    title = "FedRecu's least squares with uniform random entries"
    held = ("rows", "dim")

    clients: Count = 20
    rows: Count = 50
    dim: Count = 10
    seed: Natural = 0

    def build(self) -> Problem:
        from undrift.problems.synthetic import random_least_squares

        return random_least_squares(**self._values())


@dataclasses.dataclass(frozen=True)
class SyntheticSoftmax(Named):
    """
    samples   of each client
    features  of a sample
    classes   of labels
    alpha     how much the clients' models differ
    beta      how much their features differ
    sizes     equal: all have as many samples; lognormal: some have many more, as in FedProx's code
    l2        weight of |x|^2 / 2; left out: one over the number of all samples
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

    def build(self) -> Problem:
        from undrift.problems.synthetic import fedprox_softmax

        return fedprox_softmax(**self._values())


@dataclasses.dataclass(frozen=True)
class LogisticRegression(Named):
    """
    data       a set that is embedded, such as breast-cancer, or an svmlight file in the folder
    folder     of data sets; left out: $UNDRIFT_DATA
    partition  how the samples are split among the clients
    beta       concentration of the Dirichlet partitions: smaller is more uneven
    shards     pieces per client of the samples sorted by label, where they are split by-label
    l2         weight of |x|^2 / 2; left out: one over the number of all samples
    """

    name = "logistic"
    title = "regularised logistic regression on a binary data set"
    chance: ClassVar[Mapping[str, str]] = {"split": "split"}

    data: str = "breast-cancer"
    folder: str | None = None
    clients: Count = 10
    partition: Literal["iid", "dirichlet", "dirichlet-balanced", "by-label"] = "dirichlet"
    beta: Positive = 1.0
    shards: Count = 2
    l2: NonNegative | None = None
    seed: Natural = 0

    def build(self) -> Problem:
        from undrift.data.tables import load
        from undrift.problems.logistic import Logistic

        table = load(self.data, self.folder)
        return Logistic(
            table.features, table.labels, _split(self, table.labels, self.seed), self.l2
        )

    def fixed(self, what: str) -> str:
        return super().fixed(what) or _whole(self, what)


@dataclasses.dataclass(frozen=True)
class Images(Named):
    """
    data        digits, which is embedded, cifar10, cifar100, mnist, tiny-imagenet, or a sub-folder
                with images by class
    folder      of data sets; left out: $UNDRIFT_DATA
    train       keeps so many training images
    test        keeps so many test images
    model       the network
    hidden      width of the hidden layers of mlp and cnn-small
    projection  adds MOON's projection head to the network: true, to 256 features, or how many
    partition   how the images are split among the clients; a paper's name: as in its code
    beta        concentration of the Dirichlet partitions: smaller is more uneven
    shards      pieces per client of the images sorted by label, where they are split by-label
    augment     crops and flips of training images, as in a paper's code
    precision   of products on a GPU; weights and updates stay float32
    training    measures loss and accuracy on the clients' images too
    seed        decides the split and the first weights
    split_seed  decides the split; left out: seed does
    start_seed  decides the first weights; left out: seed does
    """

    name = "images"
    title = "a neural network on images: digits, MNIST, CIFAR, Tiny-ImageNet or a folder"
    chance: ClassVar[Mapping[str, str]] = {"split": "split", "start": "first weights"}

    data: str = "digits"
    folder: str | None = None
    train: Count | None = None
    test: Count | None = None
    model: Literal["linear", "mlp", "cnn", "cnn-paper", "cnn-small", "resnet18", "resnet18-3x3"] = (
        "cnn-small"
    )
    hidden: Count | None = None
    projection: bool | Count = False
    clients: Count = 20
    partition: Literal[
        "iid",
        "dirichlet",
        "dirichlet-balanced",
        "by-label",
        "fedspeed",
        "feddyn",
        "fedacg",
        "fedrecu",
    ] = "dirichlet"
    beta: Positive = 0.6
    shards: Count = 2
    augment: Literal["none", "fedspeed", "fedacg", "fedrecu"] = "none"
    precision: Literal["f32", "tf32", "bf16"] = "f32"
    training: bool = False
    seed: Natural = 0
    split_seed: Natural | None = None
    start_seed: Natural | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        problems = {}
        if self.hidden is not None and self.model not in ("mlp", "cnn-small"):
            problems["hidden"] = (
                f"hidden = {self.hidden} is for mlp and cnn-small; leave it out for {self.model}"
            )
        if self.augment != "none" and self.data not in ("cifar10", "cifar100", "tiny-imagenet"):
            known = "cifar10, cifar100 and tiny-imagenet"
            problems["augment"] = (
                f"augment = {self.augment!r} is made for {known}; leave it out for {self.data}"
            )
        if problems:
            raise BadParameters(self.name, problems)

    def drawn(self, what: Collection[str], seed: int) -> Self:
        split = seed if "split" in what else self.split_seed
        return dataclasses.replace(
            self, split_seed=split, start_seed=seed if "start" in what else self.start_seed
        )

    def fixed(self, what: str) -> str:
        return _whole(self, what)

    def build(self, objective: Objective | None = None) -> Neural:
        from undrift.data.augment import presets
        from undrift.data.images import load_images
        from undrift.models import build, with_projection
        from undrift.problems.neural.problem import Neural

        both = (self.train, self.test) if self.train and self.test else None
        images = load_images(self.data, self.folder, both)
        if not both and (self.train or self.test):
            sizes = self.train or len(images.labels), self.test or len(images.test_labels)
            images = load_images(self.data, self.folder, sizes)
        channels, height, width = images.images.shape[1:]
        if height != width:
            raise ValueError(
                f"the networks here take square images; those of {self.data} are {height} x {width}"
            )
        options: dict[str, Any] = {}
        if self.hidden:
            options["hidden"] = (self.hidden,) * 2 if self.model == "mlp" else self.hidden
        if self.model == "resnet18-3x3":
            options["init"] = "torch"  # FedACG's code leaves torch's own initialisation
        start = self.seed if self.start_seed is None else self.start_seed
        net = build(self.model, channels, height, len(images.classes), seed=start, **options)
        if self.projection:
            net = with_projection(
                net, 256 if self.projection is True else self.projection, seed=start
            )
        pipeline = None if self.augment == "none" else presets[self.augment](self.data)
        parts = _split(
            self, images.labels.numpy(), self.seed if self.split_seed is None else self.split_seed
        )
        return Neural(
            net,
            images,
            parts,
            pipeline=pipeline,
            objective=objective,
            precision=self.precision,
            training=self.training,
        )


def _whole(problem: LogisticRegression | Images, what: str) -> str:
    """Why there is no split to vary."""
    return "a single client holds all samples" if what == "split" and problem.clients == 1 else ""


def _split(problem: LogisticRegression | Images, labels: Any, seed: int) -> Parts:
    from undrift.core.streams import Streams
    from undrift.data import paper_partitions, partition

    among = (labels, problem.clients, Streams(seed).at("data"))
    match problem.partition:
        case "iid":
            return partition.iid(*among)
        case "dirichlet":
            return partition.dirichlet(*among, beta=problem.beta)
        case "dirichlet-balanced":
            return partition.dirichlet_balanced(*among, beta=problem.beta)
        case "by-label":
            return partition.by_label(*among, shards=problem.shards)
        case paper:
            return getattr(paper_partitions, paper)(*among, beta=problem.beta)


_ALL = (
    RandomQuadratic,
    FedRedQuadratic,
    FedCETQuadratic,
    RandomLeastSquares,
    LogisticRegression,
    SyntheticSoftmax,
    Images,
)
registry: dict[str, type[Named]] = {kind.name: kind for kind in _ALL}
"""Every named problem."""


def find(name: str) -> tuple[type[Named], dict[str, Any]]:
    """The parameters a name stands for and those it sets: ``logistic-a9a`` is ``logistic`` with
    ``data = "a9a"``.

    >>> find("images-cifar10")[1]
    {'data': 'cifar10'}
    """
    if name in registry:
        return registry[name], {}
    kind, _, data = name.partition("-")
    if data and kind in (LogisticRegression.name, Images.name):
        return registry[kind], {"data": data}
    raise ValueError(unknown("problem", name, [*registry, "logistic-DATASET", "images-DATASET"]))


def build(name: str, **parameters: Any) -> Problem:
    """A problem by name, with the parameters that differ from its defaults."""
    return made(name, **parameters).build()


def made(name: str, **parameters: Any) -> Named:
    """The parameters of a problem by name, checked."""
    kind, preset = find(name)
    values = preset | parameters
    if problems := check(name, kind, values):
        raise BadParameters(name, problems)
    return kind(**values)
