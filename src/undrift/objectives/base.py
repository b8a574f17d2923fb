"""Local losses. Any method runs with any of them; cross-entropy is the plain one."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Literal, NamedTuple, dataclass_transform

from undrift.core.params import BadParameters, check

if TYPE_CHECKING:
    from torch import Tensor

Need = Literal["global", "previous", "features", "blocks", "label_counts"]

registry: dict[str, type[Objective]] = {}
"""Every objective by name."""


class Batch(NamedTuple):
    """One client's mini-batch; the weights sum to one, and are zero where a row is only padding."""

    x: Tensor
    labels: Tensor
    weights: Tensor


class Others(NamedTuple):
    """What an objective may look at beside the local model; ``None`` where it did not declare the
    need.

    Models are called like ``local``; nothing flows back into them, and nothing is dropped in them.
    """

    received: Any = None
    """The model that local training started from."""
    previous: Any = None
    """The client's last local model."""
    label_counts: Tensor | None = None
    """How many samples of each class the client holds, ``[classes]``."""


@dataclass_transform(frozen_default=True, kw_only_default=True)
class Objective:
    """A local loss; subclasses become frozen dataclasses whose fields are its weights."""

    needs: ClassVar[tuple[Need, ...]] = ()
    title: ClassVar[str] = ""
    paper: ClassVar[str] = ""

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        dataclasses.dataclass(frozen=True, kw_only=True)(cls)
        registry[cls.__name__] = cls

    def __post_init__(self) -> None:
        values = {f.name: getattr(self, f.name) for f in dataclasses.fields(self)}  # type: ignore[arg-type]
        problems = check(type(self).__name__, type(self), values)
        if problems := problems or {f"{k}": text for k, text in enumerate(self.conditions())}:
            raise BadParameters(type(self).__name__, problems)

    def conditions(self) -> Sequence[str]:
        """What is wrong with the fields taken together."""
        return ()

    def loss(self, local: Any, batch: Batch, others: Others) -> Tensor:
        """The loss of one client's mini-batch, a scalar.

        ``local(x)`` gives logits, ``local.features(x)``, ``local.head(z)``, ``local.taps(x)`` and
        ``local.resume(tap, level)`` the parts of the network. No Python branch may depend on a
        tensor's value:
        the loss is also run for many clients at once.
        """
        raise NotImplementedError
