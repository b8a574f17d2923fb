from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from undrift.core.params import NonNegative, Positive
from undrift.objectives.base import Batch, Network, Objective, Others, needed
from undrift.objectives.crossentropy import weighted_cross_entropy, weighted_divergence

if TYPE_CHECKING:
    from torch import Tensor


class FedNTD(Objective):
    r"""FedNTD: distils what the received model says of the classes that are not true.

    .. math::

        \mathrm{CE} &+ \beta \tau^2 \mathrm{KL} & \text{form sum} \\
        (1 - \beta) \mathrm{CE} &+ \beta \mathrm{KL} & \text{form mix} \\
        \mathrm{KL} &= \mathrm{KL}(\mathrm{softmax}(r / \tau) \,\|\, \mathrm{softmax}(s / \tau))

    where r are the received model's logits and s the local ones, both without that of the sample's
    true class.

    Args:
        beta: beta, the weight of the distillation; 0 is cross-entropy.
        tau: tau, the temperature.
        form: sum, the authors' form, or mix, that of FedACG's code, which runs it with beta = 0.3.

    Example:
        >>> import undrift as ud
        >>> from undrift.objectives import FedNTD
        >>> from undrift.problems.named import Images
        >>> problem = Images(data="digits", model="mlp", clients=4).build(objective=FedNTD())
        >>> run = ud.run(ud.FedAvg(lr=0.1), problem, rounds=3, steps=5, batch=32)
        >>> run.history.last["loss"] < run.history.rows[0]["loss"]
        True

    References:
        Lee, Jeong, Shin, Bae and Yun, "Preservation of the Global Knowledge by Not-True
        Distillation in Federated Learning", NeurIPS 2022, arXiv:2106.03097.
    """

    needs = ("global",)
    title = "Not-true distillation"
    paper = "Lee et al., NeurIPS 2022"

    beta: NonNegative = 1.0
    tau: Positive = 1.0
    form: Literal["sum", "mix"] = "sum"

    def conditions(self) -> dict[str, str]:
        if self.form == "mix" and self.beta > 1:
            return {"beta": "beta is a share where form = 'mix': at most 1"}
        return {}

    def loss(self, local: Network, batch: Batch, others: Others) -> Tensor:
        logits = local(batch.x)
        own = weighted_cross_entropy(logits, batch)
        received = needed(others.received)(batch.x)
        p, q = (not_true(s, batch.labels) / self.tau for s in (received, logits))
        forgotten = weighted_divergence(p, q, batch)
        if self.form == "mix":
            return (1 - self.beta) * own + self.beta * forgotten
        return own + self.beta * self.tau**2 * forgotten


def not_true(logits: Tensor, labels: Tensor) -> Tensor:
    """``[n, classes - 1]``: each row without its label's."""
    import torch

    places = torch.arange(logits.shape[-1] - 1, device=logits.device)
    return logits.gather(-1, places + (places >= labels.unsqueeze(-1)))
