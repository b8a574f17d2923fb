from undrift.core.params import NonNegative
from undrift.objectives.base import Objective
from undrift.objectives.crossentropy import weighted_cross_entropy


class FedLC(Objective):
    """Cross-entropy of the calibrated logits s_c - tau n_c^{-1/4}, n_c the client's number of
    samples of class c.

    A class the client has no sample of is left out of the softmax.

    tau  size of the margins; 0 is cross-entropy, over all classes
    """

    needs = ("label_counts",)
    title = "Logits calibration"
    paper = "Zhang et al., ICML 2022"

    tau: NonNegative = 1.0

    def loss(self, local, batch, others):
        n = others.label_counts
        logits = local(batch.x) - self.tau * n.clamp(min=1) ** -0.25
        if self.tau:
            # Its softmax is exactly 0, as that of -inf is; but a padding row's weight 0 times it is
            # 0, not NaN.
            logits = logits.masked_fill(n == 0, -1e30)
        return weighted_cross_entropy(logits, batch)
