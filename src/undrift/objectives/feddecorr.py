from undrift.core.params import NonNegative
from undrift.objectives.base import Objective
from undrift.objectives.crossentropy import weighted_cross_entropy


class FedDecorr(Objective):
    """CE + beta mean_{a != b} (R_ab)^2 / n,  R = Z^T Z

    Z are the features of the batch's n samples, each of them shifted to mean 0 and divided by
    sqrt(var + 1e-8), var
    being the unbiased variance over the batch. One sample alone has no correlations.

    beta  weight of the decorrelation; 0 is cross-entropy
    """

    needs = ("features",)
    title = "Decorrelated features"
    paper = "Shi et al., ICLR 2023"

    beta: NonNegative = 0.1

    def loss(self, local, batch, others):
        z = local.features(batch.x)
        return weighted_cross_entropy(local.head(z), batch) + self.beta * correlation(
            z, batch.weights > 0
        )


def correlation(z, present):
    """The mean squared off-diagonal entry of R, over the number of present rows."""
    present = present.to(z.dtype).unsqueeze(-1)
    n, d = present.sum(), z.shape[-1]
    z = (z - (present * z).sum(0) / n) * present
    z = z / (z.square().sum(0) / (n - 1).clamp(min=1) + 1e-8).sqrt()
    above = (z.T @ z).triu(1)
    return 2 * above.square().sum() / max(d * (d - 1), 1) / n
