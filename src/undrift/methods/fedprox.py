from undrift.core import Local, Method, NonNegative, State
from undrift.methods._shared import LocalSGD
from undrift.methods.fedavg import FedAvg
from undrift.theory import rules, steps


class FedProx(FedAvg):
    r"""FedProx: FedAvg with a proximal term in the local function.

    Clients take K steps from y = x on :math:`f_i(y) + \tfrac{\mu}{2} \|y - x\|^2`:

    .. math::

        y &\leftarrow y - \eta_l (g_i(y) + \mu (y - x)) \\
        x &\leftarrow x + \eta_g\, \mathrm{mean}_S (y_i - x)

    The minimiser of f is not a fixed point.

    Args:
        lr: eta_l, the local step size.
        mu: mu, the weight of the proximal term; 0 is FedAvg.
        server_lr: eta_g, the server's step size.

    Example:
        >>> import undrift as ud
        >>> run = ud.run(ud.FedProx(lr="theory", mu=1.0), "quadratic", rounds=50, steps=5)
        >>> 1e-4 < run.history.last["gap"] < 1e-2  # drift leaves a gap
        True

    References:
        Li, Sahu, Zaheer, Sanjabi, Talwalkar and Smith, "Federated Optimization in Heterogeneous
        Networks", MLSys 2020, arXiv:1812.06127, Algorithm 2.
    """

    title = "FedAvg with a proximal term"
    paper = "Li et al., MLSys 2020"
    prescribed = rules(lr=lambda method, known: steps.fedavg(known.L + method.mu, known.steps))

    mu: NonNegative

    def work(self, me: State, got: Method.Down, f: Local) -> tuple[State, LocalSGD.Up]:
        y = f.sgd(got.x, self.lr, prox=self.mu)
        return me, self.Up(dy=y - got.x)
