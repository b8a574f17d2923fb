"""Logistic and softmax regression, on data sets and on data that are drawn."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal, Self

from undrift.core.params import Count, Natural, NonNegative, Positive, Rule
from undrift.problems.named.base import Named, Split, split

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from undrift.problems.logistic import Logistic
    from undrift.problems.softmax import Softmax


Pair = Annotated[
    list[float], Rule("a list of two different numbers", lambda two: len(two) == 2 == len({*two}))
]


class LogisticRegression(Named):
    """Logistic regression on a data set that is split among the clients.

    A sample's score is the product of its features and x, without an intercept unless one is asked
    for; features are taken as they are, so that columns should have similar scales.

    Args:
        data: a set that is embedded, such as breast-cancer; or a file, such as mine.csv or
            mine.svm, beside the spec or from where you are; or the name of an svmlight file in the
            folder. A CSV file has a column label, and numbers in all others.
        folder: the folder of data sets; left out: $UNDRIFT_DATA.
        labels: the two labels of a file, where it may have only one of them, as at a client of a
            federation; left out: the two that it has.
        features: columns of an svmlight file, counted from 1, where the last ones may be all zero;
            left out: the largest number of a column in it.
        intercept: adds a last column of ones, whose weight is the intercept; l2 holds for it too.
            Left out: there is none, and a sample of zeros has score 0.
        partition: how the samples are split among the clients.
        beta: concentration of the Dirichlet partitions: smaller is more uneven.
        shards: pieces per client of the samples sorted by label, where they are split by-label.
        l2: weight of |x|^2 / 2; left out: one over the number of all samples.
    """

    name = "logistic"
    title = "regularised logistic regression on a binary data set; no intercept unless asked for"
    chance: ClassVar[Mapping[str, str]] = {"split": "split"}

    data: str = "breast-cancer"
    folder: str | None = None
    labels: Pair | None = None
    features: Count | None = None
    intercept: bool = False
    clients: Count = 10
    partition: Split = "dirichlet"
    beta: Positive = 1.0
    shards: Count = 2
    l2: NonNegative | None = None
    seed: Natural = 0

    def beside(self, folder: Path) -> Self:
        data, file = Path(self.data), folder / self.data
        if self.folder or not data.suffix or data.is_absolute() or not file.is_file():
            return self
        return dataclasses.replace(self, data=Path(os.path.relpath(file)).as_posix())

    def make(self) -> Logistic:
        import numpy as np

        from undrift.data.tables import load
        from undrift.problems.logistic import Logistic

        table = load(self.data, self.folder, self.labels, self.features)
        features = table.features
        if self.intercept:
            features = np.column_stack([features, np.ones(len(features))])
        how = self.partition, self.beta, self.shards
        parts = split(table.labels, self.clients, *how, self.seed)
        problem = Logistic(features, table.labels, parts, self.l2)
        problem.class_names = table.classes
        return problem


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
