from undrift.core import Cohort, Method
from undrift.methods._shared import LocalSGD
from undrift.theory import rules, steps


class FedAvg(LocalSGD):
    r"""FedAvg: clients take local gradient steps, the server averages.

    Clients take K steps from y = x; then the server moves:

    .. math::

        y &\leftarrow y - \eta_l\, g_i(y) \\
        x &\leftarrow x + \eta_g\, \mathrm{mean}_S (y_i - x)

    Args:
        lr: eta_l, the local step size.
        server_lr: eta_g, the server's step size.

    Example:
        >>> import undrift as ud
        >>> run = ud.run(ud.FedAvg(lr=0.02), "quadratic", rounds=50, steps=5)
        >>> 1e-4 < run.history.last["gap"] < 1e-2  # drift leaves a gap
        True

    References:
        McMahan, Moore, Ramage, Hampson and Agüera y Arcas, "Communication-Efficient Learning of
        Deep Networks from Decentralized Data", AISTATS 2017, arXiv:1602.05629, Algorithm 1.
    """

    title = "Federated averaging"
    paper = "McMahan et al., AISTATS 2017"
    prescribed = rules(lr=lambda method, known: steps.fedavg(known.L, known.steps))

    def merge(self, s: Method.Server, up: LocalSGD.Up, cohort: Cohort) -> Method.Server:
        return self.Server(x=s.x + self.server_lr * up.dy)
