from undrift.core.params import NonNegative, Positive
from undrift.objectives.base import Objective
from undrift.objectives.crossentropy import weighted_cross_entropy


class MOON(Objective):
    """CE + mu sum_j w_j (-log (e^{a_j / tau} / (e^{a_j / tau} + e^{b_j / tau})))

    a_j = cos(z_j, z_j of the received model), b_j = cos(z_j, z_j of the client's previous local
    model), where z_j are
    the features of sample j: in the paper those of a projection, which ``with_projection`` adds to
    a network.

    mu   weight of the contrast; 0 is cross-entropy
    tau  temperature
    """

    needs = ("features", "global", "previous")
    title = "Model-contrastive learning"
    paper = "Li, He and Song, CVPR 2021"

    mu: NonNegative = 1.0
    tau: Positive = 0.5

    def loss(self, local, batch, others):
        import torch

        z = local.features(batch.x)
        cosines = [
            cosine(z, model.features(batch.x)) for model in (others.received, others.previous)
        ]
        nearer = (torch.stack(cosines, -1) / self.tau).log_softmax(-1)[..., 0]
        return (
            weighted_cross_entropy(local.head(z), batch) - self.mu * (batch.weights * nearer).sum()
        )


def cosine(a, b):
    """Cosines of the angles between rows; 0 where a row is 0."""
    return (a / length(a) * (b / length(b))).sum(-1)


def length(v):
    return v.norm(dim=-1, keepdim=True).clamp(min=1e-8)
