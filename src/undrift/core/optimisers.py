"""Local optimisers: what takes the place of SGD in local steps. Listing them loads no torch.

What they remember begins anew whenever a client begins its local steps, in every round: nothing of
it is sent, kept or averaged.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import TYPE_CHECKING, ClassVar, Self

from undrift.core.params import (
    BadParameters,
    BelowOne,
    NonNegative,
    Positive,
    Refusal,
    Variant,
)

if TYPE_CHECKING:
    from undrift.core.struct import Vec

Move = Callable[["Vec", "Vec"], "Vec"]
"""The next point from a point and what SGD would follow there; it writes over neither."""


@dataclasses.dataclass(frozen=True)
class Optimiser(Variant):
    """An optimiser of local steps; the fields of a subclass are its parameters."""

    owner = "optimiser"
    exact: ClassVar[bool] = False
    """Whether exact methods stay exact with it: its steps are linear in what they follow."""
    decays: ClassVar[bool] = False
    """Whether it has a weight decay of its own."""

    @classmethod
    def read(cls, given: object) -> Self:
        kind = given if isinstance(given, type) else type(given)
        if kind.__module__.startswith("torch.optim") or str(given).casefold() == "sgd":
            text = (
                "local steps are those of SGD where optimiser is left out; else give "
                "undrift.AdamW(...) or undrift.Momentum(...), not one of torch's"
            )
            raise BadParameters(cls.owner, {"": text})
        return super().read(given)

    def refuse(self, weight_decay: float) -> list[Refusal]:
        """Why gradients may not have such a ``weight_decay``."""
        if not self.decays or not weight_decay:
            return []
        text = (
            f"{self.name} decays weights by itself, apart from their gradients: leave out "
            f"weight_decay = {weight_decay:g}, and give it to {self.name} as its own"
        )
        return [Refusal("training.weight_decay", text)]

    def begin(self, lr: float | Vec) -> Move:
        """The local steps of one round, from the first on; ``lr`` may be a column of settings."""
        raise NotImplementedError


@dataclasses.dataclass(frozen=True)
class Momentum(Optimiser):
    """SGD with momentum: m becomes beta m + g, and y becomes y - lr m.

    Args:
        beta: what is kept of the steps before; 0 is SGD.
        nesterov: y - lr (g + beta m) instead, with the new m.
    """

    name = "momentum"
    title = "SGD with momentum"
    exact = True

    beta: BelowOne = 0.9
    nesterov: bool = False

    def begin(self, lr: float | Vec) -> Move:
        m: Vec | None = None

        def move(y: Vec, g: Vec) -> Vec:
            nonlocal m
            m = g.clone() if m is None else m.mul_(self.beta).add_(g)
            step = g.add(m, alpha=self.beta) if self.nesterov else m
            if isinstance(lr, float):
                return y.sub(step, alpha=lr)
            return y.addcmul(step, lr, value=-1)

        return move


@dataclasses.dataclass(frozen=True)
class AdamW(Optimiser):
    """AdamW: steps of about lr in every coordinate, and weight decay apart from the gradient.

    In local step t = 1, 2, ... of a round m becomes beta1 m + (1 - beta1) g, v becomes
    beta2 v + (1 - beta2) g^2, and y becomes (1 - lr weight_decay) y - lr m' / (sqrt(v') + eps),
    where m' = m / (1 - beta1^t) and v' = v / (1 - beta2^t).

    Args:
        beta1: what is kept of the mean of the gradients.
        beta2: what is kept of the mean of their squares.
        eps: keeps small gradients from large steps.
        weight_decay: y shrinks by lr weight_decay in a step; 0 is Adam.
    """

    name = "adamw"
    title = "Adam with weight decay of its own"
    decays = True

    beta1: BelowOne = 0.9
    beta2: BelowOne = 0.999
    eps: Positive = 1e-8
    weight_decay: NonNegative = 0.01

    def begin(self, lr: float | Vec) -> Move:
        m: Vec | None = None
        v: Vec | None = None
        t = 0

        def move(y: Vec, g: Vec) -> Vec:
            nonlocal m, v, t
            t += 1
            if m is None or v is None:
                m, v = (1 - self.beta1) * g, (1 - self.beta2) * g * g
            else:
                m.mul_(self.beta1).add_(g, alpha=1 - self.beta1)
                v.mul_(self.beta2).addcmul_(g, g, value=1 - self.beta2)
            size = v.sqrt().div_((1 - self.beta2**t) ** 0.5).add_(self.eps)
            kept, rate = (1 - lr * self.weight_decay) * y, -lr / (1 - self.beta1**t)
            if isinstance(rate, float):
                return kept.addcdiv_(m, size, value=rate)
            return kept.addcdiv_(rate * m, size)

        return move


registry: dict[str, type[Optimiser]] = {kind.name: kind for kind in (Momentum, AdamW)}
"""Every local optimiser by name."""
Optimiser.kinds = registry
