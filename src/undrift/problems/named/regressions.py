"""Logistic, softmax and ridge regression, on data sets and on data that are drawn."""

from __future__ import annotations

import dataclasses
import os
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal, Self

from undrift.core.params import Count, Natural, NonNegative, Positive, Rule, unknown
from undrift.data.natural import cards, federation
from undrift.problems.named.base import Named, Split, split

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from undrift.data.partition import Parts
    from undrift.problems.logistic import Logistic
    from undrift.problems.quadratic import Ridge
    from undrift.problems.softmax import Softmax


Pair = Annotated[
    list[float], Rule("a list of two different numbers", lambda two: len(two) == 2 == len({*two}))
]


class OnData(Named, register=False):
    """What regressions on data sets share.

    A natural federation has clients of its own, as hospitals or airlines, and keeps them unless a
    partition is named: then its samples are pooled and split anew.

    Args:
        clients: the number of clients; left out: those of a natural federation, else 10.
        partition: how the samples are split among the clients; left out: natural, by where they
            are from, for a natural federation, else dirichlet.
        beta: concentration of the Dirichlet partitions: smaller is more uneven.
        shards: pieces per client of the samples sorted by label, where they are split by-label.
        l2: weight of |x|^2 / 2; left out: one over the number of all samples.
    """

    chance: ClassVar[Mapping[str, str]] = {"split": "split"}
    group = ""

    data: str
    clients: Count | None = None  # type: ignore[assignment]
    partition: Literal[Split, "natural"] | None = None
    beta: Positive = 1.0
    shards: Count = 2
    l2: NonNegative | None = None
    seed: Natural = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        own = cards().get(self.data)
        how = self.partition or ("natural" if own or self.group else "dirichlet")
        usual = own.clients if own and how == "natural" else 10
        vars(self).update(partition=how, clients=self.clients or usual)

    def conditions(self) -> dict[str, str]:
        own = cards().get(self.data)
        fit = [name for name, card in cards().items() if card.problem == self.name]
        if self.data not in fit and (own or not hasattr(self, "folder")):
            return {"data": unknown(f"data set for {self.name}", self.data, fit)}
        if self.group and self.partition not in (None, "natural"):
            return {"partition": f"{self.group} says who holds what: leave out one of the two"}
        if not own and not self.group and self.partition == "natural":
            return {"partition": f"{self.data} has no clients of its own, as {', '.join(fit)} have"}
        if own and self.partition in (None, "natural") and self.clients not in (None, own.clients):
            return {
                "clients": f"{self.data} has {own.clients} clients of its own: leave out clients, "
                "or name a partition that splits its samples anew"
            }
        return {}

    @property
    def decided(self) -> list[str]:
        return [] if self.partition == "natural" else super().decided

    def parts(self, labels: NDArray[np.generic]) -> Parts:
        """Who has which samples of these labels."""
        if self.partition == "natural":
            return federation(self.data).parts
        how = self.partition or "", self.beta, self.shards
        return split(labels, self.clients or 10, *how, self.seed)


class LogisticRegression(OnData):
    """Logistic regression on a data set of two classes.

    A sample's score is the product of its features and x, without an intercept unless one is asked
    for; features are taken as they are, so that columns should have similar scales.

    Args:
        data: a set that is embedded, such as breast-cancer, or a natural federation (undrift list
            data); or a file, such as mine.csv or mine.svm, beside the spec or from where you are;
            or the name of an svmlight file in the folder. A column of a CSV file with words is
            taken as one of 0 and 1 for each word.
        folder: the folder of data sets; left out: $UNDRIFT_DATA.
        label: the column of a CSV file with the two classes.
        group: the column of a CSV file that says which client a row belongs to; clients is how many
            there are. Left out: none does, and samples are split by the partition.
        standardise: gives every column of a file mean 0 and standard deviation 1 over all samples.
        labels: the two labels of a file, where it may have only one of them, as at a client of a
            federation; left out: the two that it has.
        features: columns of an svmlight file, counted from 1, where the last ones may be all zero;
            left out: the largest number of a column in it.
        intercept: adds a last column of ones, whose weight is the intercept; l2 holds for it too.
            Left out: there is none, and a sample of zeros has score 0.
    """

    name = "logistic"
    title = "regularised logistic regression on a binary data set; no intercept unless asked for"

    data: str = "breast-cancer"
    folder: str | None = None
    label: str = "label"
    group: str = ""
    standardise: bool = False
    labels: Pair | None = None
    features: Count | None = None
    intercept: bool = False

    def conditions(self) -> dict[str, str]:
        if self.folder and (self.group or self.standardise):
            return {
                "folder": "group and standardise are for a file of all clients; a node cannot tell "
                "who holds what, nor all samples' mean: scale the files"
            }
        return super().conditions()

    def beside(self, folder: Path) -> Self:
        data, file = Path(self.data), folder / self.data
        if self.folder or not data.suffix or data.is_absolute() or not file.is_file():
            return self
        return dataclasses.replace(self, data=Path(os.path.relpath(file)).as_posix())

    def make(self) -> Logistic:
        import numpy as np
        import torch

        from undrift.data.partition import by_group
        from undrift.data.tables import load
        from undrift.problems.logistic import Logistic

        table = load(
            self.data, self.folder, self.labels, self.features, self.label, self.group or None
        )
        parts = by_group(table.groups) if self.group else self.parts(table.labels)
        if len(parts) != self.clients:
            raise ValueError(f"{self.group} has {len(parts)} values: give clients = {len(parts)}")
        features, width = with_ones(table.features, self.intercept), table.features.shape[1]
        mean, sd = np.zeros(features.shape[1]), np.ones(features.shape[1])
        sizes = np.abs(table.features).max(0, initial=0)
        apart = sizes.max(initial=0) / sizes[sizes > 0].min(initial=np.inf)
        if apart > 1e3 and not (self.standardise or self.folder):  # a node cannot standardise
            warnings.warn(
                f"columns of {self.data} differ by {apart:.0e} in scale: set standardise = true",
                stacklevel=2,
            )
        if self.standardise:
            mean[:width], sd[:width] = table.features.mean(0), table.features.std(0)
            sd[sd == 0] = 1
            features = (features - mean) / sd
        problem = Logistic(features, table.labels, parts, self.l2)
        problem.class_names = table.classes
        if table.columns:
            problem.columns = table.columns + ("intercept",) * self.intercept
        if self.standardise:
            problem.mean, problem.sd = torch.from_numpy(mean), torch.from_numpy(sd)
        return problem


class SoftmaxRegression(OnData):
    """Softmax regression on a natural federation of several classes.

    Each class has a weight for each feature and a bias.

    Args:
        data: a natural federation of several classes (undrift list data).
    """

    name = "softmax"
    title = "multinomial logistic regression on a natural federation"

    data: str = "penguins"

    def make(self) -> Softmax:
        from undrift.problems.softmax import Softmax

        found, names = federation(self.data), cards()[self.data].classes
        problem = Softmax(
            found.features, found.target, self.parts(found.target), self.l2, len(names)
        )
        problem.class_names = names
        return problem


class RidgeRegression(OnData):
    """Least squares on a natural federation whose target is a number.

    Each client counts alike, however many samples it has. Features and target have mean 0 and
    standard deviation 1 over all samples.

    Args:
        data: a natural federation with a measured target (undrift list data).
        intercept: adds a last column of ones, whose weight is the intercept; l2 holds for it too.
    """

    name = "ridge"
    title = "least squares with a ridge penalty on a natural federation"

    data: str = "radon"
    intercept: bool = False

    def make(self) -> Ridge:
        from undrift.problems.quadratic import Ridge

        found = federation(self.data)
        parts = self.parts(found.target)
        return Ridge(with_ones(found.features, self.intercept), found.target, parts, self.l2)


def with_ones(features: NDArray[np.float64], wanted: bool) -> NDArray[np.float64]:
    """Features, and a last column of ones if that is wanted."""
    import numpy as np

    return np.column_stack([features, np.ones((len(features), int(wanted)))])


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

        starts, cuts = range(0, self.clients, 500), ends[499:-1:500]
        pieces = np.split(counts, starts[1:]), np.split(x, cuts), np.split(labels, cuts)
        with ThreadPoolExecutor(os.cpu_count()) as pool:
            list(pool.map(self._samples, starts, *pieces))
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
