from __future__ import annotations

from typing import TYPE_CHECKING

from undrift.core.params import NonNegative, Positive
from undrift.objectives.base import Batch, Network, Objective, Others, needed
from undrift.objectives.crossentropy import weighted_cross_entropy

if TYPE_CHECKING:
    from torch import Tensor


class MOON(Objective):
    r"""MOON: features are drawn to the received model's and away from the last local model's.

    .. math::

        \mathrm{CE} &- \mu \sum_j w_j \log (e^{a_j / \tau} / (e^{a_j / \tau} + e^{b_j / \tau})) \\
        a_j &= \cos(z_j, z_j^{received}), \quad b_j = \cos(z_j, z_j^{previous})

    where z_j are the features of sample j: in the paper those of a projection, which
    ``with_projection`` adds to a network.

    Args:
        mu: mu, the weight of the contrast; 0 is cross-entropy.
        tau: tau, the temperature.

    Example:
        >>> import undrift as ud
        >>> from undrift.objectives import MOON
        >>> from undrift.problems.named import Images
        >>> problem = Images(data="digits", model="mlp", clients=4).build(objective=MOON())
        >>> run = ud.run(ud.FedAvg(lr=0.1), problem, rounds=3, steps=5, batch=32)
        >>> run.history.last["loss"] < run.history.rows[0]["loss"]
        True

    References:
        Li, He and Song, "Model-Contrastive Federated Learning", CVPR 2021, arXiv:2103.16257.
    """

    needs = ("features", "global", "previous")
    title = "Model-contrastive learning"
    paper = "Li, He and Song, CVPR 2021"

    mu: NonNegative = 1.0
    tau: Positive = 0.5

    def loss(self, local: Network, batch: Batch, others: Others) -> Tensor:
        import torch

        z = local.features(batch.x)
        models = needed(others.received), needed(others.previous)
        cosines = [cosine(z, model.features(batch.x)) for model in models]
        nearer = (torch.stack(cosines, -1) / self.tau).log_softmax(-1)[..., 0]
        contrast = (batch.weights * nearer).sum()
        return weighted_cross_entropy(local.head(z), batch) - self.mu * contrast


def cosine(a: Tensor, b: Tensor) -> Tensor:
    """Cosines of the angles between rows; 0 where a row is 0."""
    return (a / length(a) * (b / length(b))).sum(-1)


def length(v: Tensor) -> Tensor:
    norm: Tensor = v.norm(dim=-1, keepdim=True)
    return norm.clamp(min=1e-8)
