from __future__ import annotations

from typing import TYPE_CHECKING

from undrift.core.params import NonNegative
from undrift.objectives.base import Batch, Network, Objective, Others, needed
from undrift.objectives.crossentropy import weighted_cross_entropy

if TYPE_CHECKING:
    from torch import Tensor


class FedLC(Objective):
    r"""FedLC: cross-entropy of logits calibrated by the client's label counts.

    With n_c the client's number of samples of class c:

    .. math::

        \mathrm{CE}(s - m), \quad m_c = \tau\, n_c^{-1/4}

    A class of which the client has no sample is left out of the softmax.

    Args:
        tau: tau, the size of the margins; 0 is cross-entropy over all classes.

    Example:
        >>> import undrift as ud
        >>> from undrift.objectives import FedLC
        >>> from undrift.problems.named import Images
        >>> problem = Images(data="digits", model="mlp", clients=4).build(objective=FedLC(tau=1.0))
        >>> run = ud.run(ud.FedAvg(lr=0.1), problem, rounds=3, steps=5, batch=32)
        >>> run.history.last["loss"] < run.history.rows[0]["loss"]
        True

    References:
        Zhang, Li, Li, Xu, Wu, Ding and Wu, "Federated Learning with Label Distribution Skew via
        Logits Calibration", ICML 2022, arXiv:2209.00189.
    """

    needs = ("label_counts",)
    title = "Logits calibration"
    paper = "Zhang et al., ICML 2022"

    tau: NonNegative = 1.0

    def loss(self, local: Network, batch: Batch, others: Others) -> Tensor:
        n = needed(others.label_counts)
        logits = local(batch.x) - self.tau * n.clamp(min=1) ** -0.25
        if self.tau:
            # The softmax there is exactly 0, as that of -inf; but 0 times it, in a padding row, is
            # 0 and not NaN.
            logits = logits.masked_fill(n == 0, -1e30)
        return weighted_cross_entropy(logits, batch)
