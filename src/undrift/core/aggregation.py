"""What the server makes of the uploads: their mean, or a robust rule that takes its place.

A robust rule sees whole uploads: one row for each client, with all the vectors that it sent, so
that a client is in or out for all of them. Median and trimmed mean treat every coordinate by
itself. Rows that are not finite count as infinitely far away. Listing and checking the rules loads
no torch.
"""

from __future__ import annotations

import dataclasses
import math
from typing import TYPE_CHECKING, ClassVar

from undrift.core.cohort import Sampling
from undrift.core.params import Count, Natural, Positive, Range, Refusal, Variant
from undrift.core.struct import Vec, length

if TYPE_CHECKING:
    BelowHalf = float
else:
    from typing import Annotated

    BelowHalf = Annotated[float, Range(0, 0.5, open_low=True, open_high=True)]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Aggregation(Variant):
    """A rule; the fields of a subclass are its parameters."""

    owner = "aggregation"
    by_samples: ClassVar[bool] = False
    """Whether clients count by their number of samples."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Mean(Aggregation):
    """The mean of the uploads, in which clients count alike."""

    name = "mean"
    title = "the mean"


@dataclasses.dataclass(frozen=True, kw_only=True)
class WeightedMean(Aggregation):
    """The mean of the uploads, in which clients count by their number of samples.

    The loss of a row does not follow: it is over test samples, or a mean in which clients count
    alike.
    """

    name = "weighted-mean"
    title = "the mean, clients by their number of samples"
    by_samples = True


@dataclasses.dataclass(frozen=True, kw_only=True)
class Robust(Aggregation):
    """A rule that takes the place of the mean."""

    centred: ClassVar[bool] = False
    """Looks at the lengths of uploads: ``reduce`` takes them as differences from the upload of a
    client that did nothing, which ``Phase.centre`` declares."""
    remembers: ClassVar[bool] = False
    """Starts from its last result, which is part of the state of a run."""

    @property
    def least(self) -> int:
        """The fewest uploads that the rule can be applied to."""
        return 1

    def refuse(self, cohort: Sampling) -> list[Refusal]:
        """Why the rule cannot be applied to the uploads of such cohorts."""
        if cohort.size < self.least:
            return [self.too_few(cohort.size)]
        if self.least > 1 and cohort.varies:
            text = (
                f"{self.name} needs {self.least} uploads in every round, and these cohorts may be "
                "smaller: draw them with fixed sampling and no dropout, or use median"
            )
            return [Refusal("aggregation", text)]
        return []

    def too_few(self, size: int) -> Refusal:
        """What must change for the rule to be applied to ``size`` uploads."""
        text = f"{self.name} needs {self.least} clients, more than the {size} of a cohort"
        return Refusal("aggregation", text)

    def reduce(self, rows: Vec, last: Vec | None = None) -> Vec:
        """What the server receives of the uploads ``rows [S, D]``.

        ``last [D]`` is the last result of a rule that remembers it.
        """
        raise NotImplementedError


@dataclasses.dataclass(frozen=True, kw_only=True)
class Median(Robust):
    """The median of every coordinate; of an even number, the mean of the middle two."""

    name = "median"
    title = "the median of every coordinate"

    def reduce(self, rows: Vec, last: Vec | None = None) -> Vec:
        return _trimmed(rows, (len(rows) - 1) // 2)


@dataclasses.dataclass(frozen=True, kw_only=True)
class TrimmedMean(Robust):
    """The mean of every coordinate without its largest and its smallest values.

    Args:
        share: of the uploads, as much is left out at either end, rounded down to whole clients.
    """

    name = "trimmed-mean"
    title = "the mean of every coordinate without its extremes"

    share: BelowHalf

    @property
    def least(self) -> int:
        return math.ceil(1 / self.share - _ROUNDING)

    def too_few(self, size: int) -> Refusal:
        text = (
            f"share = {self.share:g} of a cohort of {size} is less than one client, so that nothing"
            " is left out: give a larger share or a larger cohort"
        )
        return Refusal("aggregation.share", text)

    def reduce(self, rows: Vec, last: Vec | None = None) -> Vec:
        return _trimmed(rows, math.floor(self.share * len(rows) + _ROUNDING))


@dataclasses.dataclass(frozen=True, kw_only=True)
class Krum(Robust):
    """The upload with the nearest neighbours: the least sum of squared distances to n - bad - 2.

    Of equal ones, that of the client with the lowest number.

    Args:
        bad: how many clients of a cohort may send anything; a cohort has at least 2 bad + 3.
    """

    name = "krum"
    title = "the upload nearest to its neighbours"

    bad: Natural

    @property
    def least(self) -> int:
        return 2 * self.bad + 3

    def too_few(self, size: int) -> Refusal:
        text = (
            f"{self.name} with bad = {self.bad} needs cohorts of at least 2 bad + 3 = "
            f"{2 * self.bad + 3} clients, and these have {size}: give a smaller bad or a larger "
            "cohort"
        )
        return Refusal("aggregation.bad", text)

    def reduce(self, rows: Vec, last: Vec | None = None) -> Vec:
        return rows.index_select(0, self._nearest(rows)[:1])[0]

    def _nearest(self, rows: Vec) -> Vec:
        """The places of the rows in the order of their scores."""
        import torch

        exact = "donot_use_mm_for_euclid_dist"  # products lose the digits of small distances
        squares = torch.cdist(rows, rows, compute_mode=exact).square()
        near = squares.sort(dim=1).values[:, 1 : len(rows) - self.bad - 1]  # the first is its own
        return near.sum(1).sort(stable=True).indices


@dataclasses.dataclass(frozen=True, kw_only=True)
class MultiKrum(Krum):
    """The mean of the uploads that Krum would choose first.

    Args:
        bad: how many clients of a cohort may send anything; a cohort has at least 2 bad + 3.
        keep: how many uploads are averaged, at most n - bad; left out: n - bad - 2.
    """

    name = "multi-krum"
    title = "the mean of the uploads nearest to their neighbours"

    keep: Count | None = None

    @property
    def least(self) -> int:
        return max(2 * self.bad + 3, self.bad + (self.keep or 0))

    def too_few(self, size: int) -> Refusal:
        if self.keep is None or size < 2 * self.bad + 3:
            return super().too_few(size)
        text = (
            f"keep = {self.keep} is more than the {size - self.bad} of {size} clients that are not "
            f"bad: give a smaller keep or a larger cohort"
        )
        return Refusal("aggregation.keep", text)

    def reduce(self, rows: Vec, last: Vec | None = None) -> Vec:
        keep = self.keep or len(rows) - self.bad - 2
        kept: Vec = rows.index_select(0, self._nearest(rows)[:keep]).mean(0)
        return kept


@dataclasses.dataclass(frozen=True, kw_only=True)
class GeometricMedian(Robust):
    """The point with the least sum of distances to the uploads, by smoothed Weiszfeld steps.

    They start at the median of every coordinate, which bad uploads cannot move far; the mean may
    be so far away that no fixed number of steps leads back.

    Args:
        iterations: steps of the algorithm.
        smoothing: shorter distances count as this share of the median distance from the start.
    """

    name = "geometric-median"
    title = "the least sum of distances to the uploads"

    iterations: Count = 20
    smoothing: Positive = 1e-6

    def reduce(self, rows: Vec, last: Vec | None = None) -> Vec:
        start = point = _trimmed(rows, (len(rows) - 1) // 2)
        # the median of all distances: one that is not a number is larger than the others
        middle = length(rows - point).sort(dim=0).values[(len(rows) - 1) // 2]
        for _ in range(self.iterations):
            weight = 1 / length(rows - point).clamp(min=self.smoothing * middle)
            point = _scaled(rows, weight).sum(0) / weight.nansum()
        # Half of the uploads may be the start itself, which is then the answer. Both are computed:
        # to ask first would make the host wait for a GPU.
        return point.where(middle > 0, start)


@dataclasses.dataclass(frozen=True, kw_only=True)
class CentredClipping(Robust):
    """The last result, moved by the mean of the differences to it, none longer than the radius.

    Before the first round it is the upload of a client that did nothing.

    Args:
        radius: longest difference; what is longer is shortened to it.
        iterations: how often the result is moved.
    """

    name = "centred-clipping"
    title = "the last result, moved by clipped differences"
    centred = True
    remembers = True

    radius: Positive
    iterations: Count = 1

    def reduce(self, rows: Vec, last: Vec | None = None) -> Vec:
        point = rows.new_zeros(rows.shape[1]) if last is None else last
        for _ in range(self.iterations):
            point = point + _clipped(rows - point, self.radius).mean(0)
        return point


@dataclasses.dataclass(frozen=True, kw_only=True)
class NormClipping(Robust):
    """The mean of the uploads, none longer than the radius.

    The length of an upload is its distance from that of a client that did nothing.

    Args:
        radius: longest upload; what is longer is shortened to it.
    """

    name = "norm-clipping"
    title = "the mean of the clipped uploads"
    centred = True

    radius: Positive

    def reduce(self, rows: Vec, last: Vec | None = None) -> Vec:
        return _clipped(rows, self.radius).mean(0)


registry: dict[str, type[Aggregation]] = {
    rule.name: rule
    for rule in (
        Mean, WeightedMean, Median, TrimmedMean, Krum, MultiKrum, GeometricMedian,
        CentredClipping, NormClipping,
    )
}  # fmt: skip
"""Every rule by name."""
MEAN = Mean()
"""What the server makes of the uploads unless it is told."""
Aggregation.kinds = registry
_ROUNDING = 1e-9
"""0.29 of 100 clients are 29, although 0.29 * 100 < 29."""


def _trimmed(rows: Vec, cut: int) -> Vec:
    """The mean of every coordinate without its ``cut`` smallest and largest values."""
    kept: Vec = rows.sort(dim=0).values[cut : len(rows) - cut].mean(0)
    return kept


def _clipped(rows: Vec, radius: float) -> Vec:
    """Rows that are longer than ``radius`` shortened to it."""
    return _scaled(rows, radius / length(rows).clamp(min=radius))


def _scaled(rows: Vec, weight: Vec) -> Vec:
    """Each row times its weight; 0 where the row is not finite or too long for its norm."""
    import torch

    return torch.where(weight > 0, weight * rows, 0.0)
