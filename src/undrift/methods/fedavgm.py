from undrift.core import Cohort, Fraction, State, Vec
from undrift.methods._shared import LocalSGD


class FedAvgM(LocalSGD):
    r"""FedAvgM: FedAvg with momentum on the server.

    Clients take K steps from y = x; then the server moves:

    .. math::

        y &\leftarrow y - \eta_l\, g_i(y) \\
        m &\leftarrow \beta m + \mathrm{mean}_S (y_i - x) \\
        x &\leftarrow x + \eta_g m

    Args:
        lr: eta_l, the local step size.
        beta: beta, the momentum; 0 is FedAvg.
        server_lr: eta_g, the server's step size.

    Example:
        >>> import undrift as ud
        >>> run = ud.run(ud.FedAvgM(lr=0.01, beta=0.5), "quadratic", rounds=50, steps=5)
        >>> 1e-4 < run.history.last["gap"] < 1e-2  # drift leaves a gap
        True

    References:
        Hsu, Qi and Brown, "Measuring the Effects of Non-Identical Data Distribution for Federated
        Visual Classification", 2019, arXiv:1909.06335.
    """

    title = "FedAvg with server momentum"
    paper = "Hsu et al., 2019"

    beta: Fraction

    class Server(State):
        x: Vec
        m: Vec

    def server(self, x0: Vec) -> Server:
        return self.Server(x=x0, m=0 * x0)

    def merge(self, s: Server, up: LocalSGD.Up, cohort: Cohort) -> Server:
        m = self.beta * s.m + up.dy
        return self.Server(x=s.x + self.server_lr * m, m=m)
