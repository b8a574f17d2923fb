from __future__ import annotations

from typing import TYPE_CHECKING

from undrift.objectives.base import Batch, Network, Objective, Others

if TYPE_CHECKING:
    from torch import Tensor


class CrossEntropy(Objective):
    r"""Cross-entropy: the loss of every method unless another is named.

    .. math::

        \mathrm{CE}(s) = -\sum_j w_j \log \mathrm{softmax}(s_j)_{y_j}

    Example:
        >>> import undrift as ud
        >>> from undrift.objectives import CrossEntropy
        >>> from undrift.problems.named import Images
        >>> problem = Images(data="digits", model="mlp", clients=4).build(objective=CrossEntropy())
        >>> run = ud.run(ud.FedAvg(lr=0.1), problem, rounds=3, steps=5, batch=32)
        >>> run.history.last["loss"] < run.history.rows[0]["loss"]
        True

    References:
        Cox, "The Regression Analysis of Binary Sequences", Journal of the Royal Statistical
        Society B 1958.
    """

    title = "Cross-entropy"
    paper = "the loss of every method unless another is named"

    def loss(self, local: Network, batch: Batch, others: Others) -> Tensor:
        return weighted_cross_entropy(local(batch.x), batch)


def weighted_cross_entropy(logits: Tensor, batch: Batch) -> Tensor:
    """Cross-entropy of ``logits``, samples counted by their weights."""
    picked = logits.log_softmax(-1).gather(-1, batch.labels.unsqueeze(-1)).squeeze(-1)
    return -(batch.weights * picked).sum()


def weighted_divergence(p: Tensor, q: Tensor, batch: Batch) -> Tensor:
    """KL(softmax(p) || softmax(q)), samples counted by their weights, differentiable in both."""
    log_p, log_q = p.log_softmax(-1), q.log_softmax(-1)
    return (batch.weights * (log_p.exp() * (log_p - log_q)).sum(-1)).sum()
