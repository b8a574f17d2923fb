from __future__ import annotations

from typing import TYPE_CHECKING

from undrift.core.params import NonNegative, Positive
from undrift.objectives.base import Batch, Network, Objective, Others, needed
from undrift.objectives.crossentropy import weighted_cross_entropy, weighted_divergence

if TYPE_CHECKING:
    from torch import Tensor


class FedMLB(Objective):
    r"""FedMLB: hybrid paths that end in the received model's blocks regularise the local one.

    .. math::

        \lambda_1 \mathrm{CE}(s) + \mathrm{mean}_l (\lambda_2 \mathrm{CE}(h_l)
            + \lambda_3 \mathrm{KL}(\mathrm{softmax}(h_l / T) \,\|\, \mathrm{softmax}(s / T)))

    where h_l are the logits of hybrid path l: local blocks up to l, then the received model's. The
    gradient flows through both sides of the divergence, but not into the received model.

    Args:
        lam1: lambda_1, the weight of the local path.
        lam2: lambda_2, the weight of the cross-entropy of the hybrid paths.
        lam3: lambda_3, the weight of the divergence; with lam2 = 0 too it is cross-entropy.
        T: T, the temperature.

    Example:
        >>> import undrift as ud
        >>> from undrift.objectives import FedMLB
        >>> from undrift.problems.named import Images
        >>> problem = Images(data="digits", model="mlp", clients=4).build(objective=FedMLB())
        >>> run = ud.run(ud.FedAvg(lr=0.1), problem, rounds=3, steps=5, batch=32)
        >>> run.history.last["loss"] < run.history.rows[0]["loss"]
        True

    References:
        Kim, Kim and Han, "Multi-Level Branched Regularization for Federated Learning", ICML 2022,
        arXiv:2207.06936.
    """

    needs = ("blocks", "global")
    title = "Multi-level branched regularisation"
    paper = "Kim et al., ICML 2022"

    lam1: NonNegative = 1.0
    lam2: NonNegative = 1.0
    lam3: NonNegative = 1.0
    T: Positive = 1.0

    def loss(self, local: Network, batch: Batch, others: Others) -> Tensor:
        received, taps = needed(others.received), local.taps(batch.x)
        last = len(taps) - 1
        logits = local.resume(taps[last], last)
        hybrids = [received.resume(tap, level) for level, tap in enumerate(taps)]
        wrong = sum(weighted_cross_entropy(hybrid, batch) for hybrid in hybrids)
        apart = sum(
            weighted_divergence(hybrid / self.T, logits / self.T, batch) for hybrid in hybrids
        )
        own = weighted_cross_entropy(logits, batch)
        return self.lam1 * own + (self.lam2 * wrong + self.lam3 * apart) / len(taps)
