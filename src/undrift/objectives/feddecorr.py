from __future__ import annotations

from typing import TYPE_CHECKING

from undrift.core.params import NonNegative
from undrift.objectives.base import Batch, Network, Objective, Others
from undrift.objectives.crossentropy import weighted_cross_entropy

if TYPE_CHECKING:
    from torch import Tensor


class FedDecorr(Objective):
    r"""FedDecorr: cross-entropy and a penalty on correlated features.

    .. math::

        \mathrm{CE} + \beta\, \mathrm{mean}_{a \ne b} (R_{ab}^2) / n, \quad R = Z^T Z

    Z are the features of the batch's n samples, each feature shifted to mean 0 and divided by
    sqrt(var + 1e-8), where var is its unbiased variance over the batch. A single sample has no
    correlations.

    Args:
        beta: beta, the weight of the decorrelation; 0 is cross-entropy.

    Example:
        >>> import undrift as ud
        >>> from undrift.objectives import FedDecorr
        >>> from undrift.problems.named import Images
        >>> problem = Images(data="digits", model="mlp", clients=4).build(objective=FedDecorr())
        >>> run = ud.run(ud.FedAvg(lr=0.1), problem, rounds=3, steps=5, batch=32)
        >>> run.history.last["loss"] < run.history.rows[0]["loss"]
        True

    References:
        Shi, Liang, Zhang, Tan and Bai, "Towards Understanding and Mitigating Dimensional Collapse
        in Heterogeneous Federated Learning", ICLR 2023, arXiv:2210.00226.
    """

    needs = ("features",)
    title = "Decorrelated features"
    paper = "Shi et al., ICLR 2023"

    beta: NonNegative = 0.1

    def loss(self, local: Network, batch: Batch, others: Others) -> Tensor:
        z = local.features(batch.x)
        own = weighted_cross_entropy(local.head(z), batch)
        return own + self.beta * correlation(z, batch.weights > 0)


def correlation(z: Tensor, present: Tensor) -> Tensor:
    """The mean squared off-diagonal entry of R, over the number of present rows."""
    present = present.to(z.dtype).unsqueeze(-1)
    n, d = present.sum(), z.shape[-1]
    z = (z - (present * z).sum(0) / n) * present
    z = z / (z.square().sum(0) / (n - 1).clamp(min=1) + 1e-8).sqrt()
    above = (z.T @ z).triu(1)
    return 2 * above.square().sum() / max(d * (d - 1), 1) / n
