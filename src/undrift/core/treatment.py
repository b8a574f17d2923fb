"""How training runs treat local gradients and weigh uploads: declared once, for engines and for specs."""

from __future__ import annotations

import dataclasses
from typing import Literal

from undrift.core.params import Fraction, NonNegative, Positive

Scope = Literal["task", "whole", "reference"]
Weights = Literal["uniform", "samples"]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Treatment:
    """How local gradients are treated.

    weight_decay  adds weight_decay * y to every local gradient
    clip          largest norm of a gradient (over all its coordinates)
    clip_scope    task: the gradient of the loss is clipped, what a method adds to it is not;
                  whole: all that a local step follows is clipped, but for weight decay, as in FedACG's code;
                  reference: likewise, but of a proximal term w (y - x) only -w x, as in FedSpeed's and FedDyn's codes:
                  where w |x| is above clip, the local model is pulled to zero
    decay         factor on lr after every round
    """

    weight_decay: NonNegative = 0.0
    clip: Positive | None = None
    clip_scope: Scope = "task"
    decay: Fraction = 1.0
