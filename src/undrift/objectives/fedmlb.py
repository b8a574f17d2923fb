from undrift.core.params import NonNegative, Positive
from undrift.objectives.base import Objective
from undrift.objectives.crossentropy import weighted_cross_entropy, weighted_divergence


class FedMLB(Objective):
    """lam1 CE(s) + mean_l (lam2 CE(h_l) + lam3 KL(softmax(h_l / T) || softmax(s / T)))

    s are the local logits, and h_l those of hybrid path l: local blocks up to l, then the received
    model's blocks.
    The gradient flows through both sides of the divergence, but not into the received model.

    lam1  lambda_1, weight of the local path
    lam2  lambda_2, weight of the cross-entropy of the hybrid paths
    lam3  lambda_3, weight of the divergence; with lam2 = 0 too it is cross-entropy
    T     temperature
    """

    needs = ("blocks", "global")
    title = "Multi-level branched regularisation"
    paper = "Kim et al., ICML 2022"

    lam1: NonNegative = 1.0
    lam2: NonNegative = 1.0
    lam3: NonNegative = 1.0
    T: Positive = 1.0

    def loss(self, local, batch, others):
        taps = local.taps(batch.x)
        last = len(taps) - 1
        logits = local.resume(taps[last], last)
        hybrids = [others.received.resume(tap, level) for level, tap in enumerate(taps)]
        wrong = sum(weighted_cross_entropy(hybrid, batch) for hybrid in hybrids)
        apart = sum(
            weighted_divergence(hybrid / self.T, logits / self.T, batch) for hybrid in hybrids
        )
        own = weighted_cross_entropy(logits, batch)
        return self.lam1 * own + (self.lam2 * wrong + self.lam3 * apart) / len(taps)
