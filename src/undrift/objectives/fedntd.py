from typing import Literal

from undrift.core.params import NonNegative, Positive
from undrift.objectives.base import Objective
from undrift.objectives.crossentropy import weighted_cross_entropy, weighted_divergence


class FedNTD(Objective):
    """sum:  CE + beta tau^2 KL;  mix:  (1 - beta) CE + beta KL

    KL(softmax(r / tau) || softmax(s / tau)) where r are the received model's logits and s the local
    ones, both without
    that of the sample's true class.

    beta  weight of the distillation; 0 is cross-entropy
    tau   temperature
    form  sum: the authors'; mix: FedACG's code, which runs it with beta = 0.3
    """

    needs = ("global",)
    title = "Not-true distillation"
    paper = "Lee et al., NeurIPS 2022"

    beta: NonNegative = 1.0
    tau: Positive = 1.0
    form: Literal["sum", "mix"] = "sum"

    def conditions(self):
        return ["beta is a share where form = 'mix': at most 1"] * (
            self.form == "mix" and self.beta > 1
        )

    def loss(self, local, batch, others):
        logits = local(batch.x)
        own = weighted_cross_entropy(logits, batch)
        p, q = (not_true(s, batch.labels) / self.tau for s in (others.received(batch.x), logits))
        forgotten = weighted_divergence(p, q, batch)
        if self.form == "mix":
            return (1 - self.beta) * own + self.beta * forgotten
        return own + self.beta * self.tau**2 * forgotten


def not_true(logits, labels):
    """``[n, classes - 1]``: each row without its label's."""
    import torch

    places = torch.arange(logits.shape[-1] - 1, device=logits.device)
    return logits.gather(-1, places + (places >= labels.unsqueeze(-1)))
