from undrift.objectives.base import Objective


class CrossEntropy(Objective):
    """sum_j w_j (-log softmax(s_j)_{y_j}), s_j the logits of sample j."""

    title = "Cross-entropy"
    paper = "the loss of every method unless another is named"

    def loss(self, local, batch, others):
        return weighted_cross_entropy(local(batch.x), batch)


def weighted_cross_entropy(logits, batch):
    """Cross-entropy of ``logits``, samples counted by their weights."""
    picked = logits.log_softmax(-1).gather(-1, batch.labels.unsqueeze(-1)).squeeze(-1)
    return -(batch.weights * picked).sum()


def weighted_divergence(p, q, batch):
    """KL(softmax(p) || softmax(q)), samples counted by their weights; the gradient is that of both."""
    log_p, log_q = p.log_softmax(-1), q.log_softmax(-1)
    return (batch.weights * (log_p.exp() * (log_p - log_q)).sum(-1)).sum()
