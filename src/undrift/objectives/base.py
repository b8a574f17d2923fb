"""Local losses. Any method runs with any of them; cross-entropy is the plain one."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import (
    TYPE_CHECKING,
    ClassVar,
    Literal,
    NamedTuple,
    Protocol,
    TypeVar,
    dataclass_transform,
)

from undrift.core.params import Record

if TYPE_CHECKING:
    from torch import Tensor

Need = Literal["global", "previous", "features", "blocks", "label_counts"]

registry: dict[str, type[Objective]] = {}
"""Every objective by name."""


class Network(Protocol):
    """A network with its weights, as a loss sees it; rows are samples."""

    def __call__(self, x: Tensor) -> Tensor:
        """Logits."""

    def features(self, x: Tensor) -> Tensor:
        """What the last layer, the head, is applied to."""

    def head(self, z: Tensor) -> Tensor:
        """Logits of features."""

    def taps(self, x: Tensor) -> Sequence[Tensor]:
        """The outputs of all blocks."""

    def resume(self, tap: Tensor, level: int) -> Tensor:
        """Logits from the output of block ``level``."""


class Batch(NamedTuple):
    """One client's mini-batch; the weights sum to one, and are zero where a row is only padding."""

    x: Tensor
    labels: Tensor
    weights: Tensor


class Others(NamedTuple):
    """What an objective may look at beside the local model; ``None`` where it declares no need.

    Nothing flows back into these models, and nothing is dropped in them.
    """

    received: Network | None = None
    """The model that local training started from."""
    previous: Network | None = None
    """The client's last local model."""
    label_counts: Tensor | None = None
    """How many samples of each class the client holds, ``[classes]``."""


Value = TypeVar("Value")


def needed(value: Value | None) -> Value:
    """One of the others, which the objective has declared in ``needs``."""
    if value is None:
        raise TypeError("an objective reads what it does not declare in needs")
    return value


@dataclass_transform(frozen_default=True, kw_only_default=True)
@dataclasses.dataclass(frozen=True, kw_only=True)
class Objective(Record):
    """A local loss; subclasses become frozen dataclasses whose fields are its weights."""

    short = "text"
    needs: ClassVar[tuple[Need, ...]] = ()
    title: ClassVar[str] = ""
    paper: ClassVar[str] = ""
    file: ClassVar[str] = ""
    """The user's file it is from, relative to the spec that names it."""

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        dataclasses.dataclass(frozen=True, kw_only=True)(cls)
        registry[cls.__name__] = cls

    def loss(self, local: Network, batch: Batch, others: Others) -> Tensor:
        """The loss of one client's mini-batch, a scalar.

        No Python branch may depend on a tensor's value: the loss is also run for many clients at
        once.
        """
        raise NotImplementedError
