from undrift.core import Cohort, Fraction, Positive, State, Vec
from undrift.methods._shared import LocalSGD


class FedOpt(LocalSGD, abstract=True):
    """FedAvg whose server applies an adaptive step, without bias correction, to its mean move D.

    m becomes beta1 m + (1 - beta1) D, v what each subclass says, starting at tau^2, and x becomes
    x + server_lr m / (sqrt(v) + tau).
    """

    paper = "Reddi et al., ICLR 2021"
    affine = False
    coordinatewise = True

    server_lr: Positive = 0.1
    beta1: Fraction = 0.9
    tau: Positive = 1e-3

    class Server(State):
        x: Vec
        m: Vec
        v: Vec

    def server(self, x0: Vec) -> Server:
        return self.Server(x=x0, m=0 * x0, v=0 * x0 + self.tau**2)

    def merge(self, s: Server, up: LocalSGD.Up, cohort: Cohort) -> Server:
        m = self.beta1 * s.m + (1 - self.beta1) * up.dy
        v = self.second_moment(s.v, up.dy * up.dy)
        return self.Server(x=s.x + self.server_lr * m / (v.sqrt() + self.tau), m=m, v=v)

    def second_moment(self, v: Vec, d2: Vec) -> Vec:
        """The next v from the last one and the squares of D."""
        raise NotImplementedError


class FedAdam(FedOpt):
    r"""FedAdam: FedAvg with Adam on the server.

    With :math:`D = \mathrm{mean}_S (y_i - x)` of FedAvg's clients, coordinate by coordinate:

    .. math::

        m &\leftarrow \beta_1 m + (1 - \beta_1) D \\
        v &\leftarrow \beta_2 v + (1 - \beta_2) D^2 \\
        x &\leftarrow x + \eta_g\, m / (\sqrt{v} + \tau)

    Args:
        lr: eta_l, the local step size.
        server_lr: eta_g, the server's step size.
        beta1: beta_1, the decay of the first moment.
        beta2: beta_2, the decay of the second moment.
        tau: tau, added to the root; v starts at its square.

    Example:
        >>> import undrift as ud
        >>> run = ud.run(ud.FedAdam(lr=0.01), "quadratic", rounds=50, steps=5)
        >>> run.history.last["gap"] < 1
        True

    References:
        Reddi, Charles, Zaheer, Garrett, Rush, Konečný, Kumar and McMahan, "Adaptive Federated
        Optimization", ICLR 2021, arXiv:2003.00295, Algorithm 2.
    """

    title = "Adam on the server"
    beta2: Fraction = 0.99

    def second_moment(self, v: Vec, d2: Vec) -> Vec:
        return self.beta2 * v + (1 - self.beta2) * d2


class FedYogi(FedOpt):
    r"""FedYogi: FedAvg with Yogi on the server.

    With :math:`D = \mathrm{mean}_S (y_i - x)` of FedAvg's clients, coordinate by coordinate:

    .. math::

        m &\leftarrow \beta_1 m + (1 - \beta_1) D \\
        v &\leftarrow v - (1 - \beta_2) D^2\, \mathrm{sign}(v - D^2) \\
        x &\leftarrow x + \eta_g\, m / (\sqrt{v} + \tau)

    Args:
        lr: eta_l, the local step size.
        server_lr: eta_g, the server's step size.
        beta1: beta_1, the decay of the first moment.
        beta2: beta_2, the decay of the second moment.
        tau: tau, added to the root; v starts at its square.

    Example:
        >>> import undrift as ud
        >>> run = ud.run(ud.FedYogi(lr=0.01), "quadratic", rounds=50, steps=5)
        >>> run.history.last["gap"] < 1
        True

    References:
        Reddi, Charles, Zaheer, Garrett, Rush, Konečný, Kumar and McMahan, "Adaptive Federated
        Optimization", ICLR 2021, arXiv:2003.00295, Algorithm 2.
    """

    title = "Yogi on the server"
    beta2: Fraction = 0.99

    def second_moment(self, v: Vec, d2: Vec) -> Vec:
        return v - (1 - self.beta2) * d2 * (v - d2).sign()


class FedAdagrad(FedOpt):
    r"""FedAdagrad: FedAvg with Adagrad on the server.

    With :math:`D = \mathrm{mean}_S (y_i - x)` of FedAvg's clients, coordinate by coordinate:

    .. math::

        m &\leftarrow \beta_1 m + (1 - \beta_1) D \\
        v &\leftarrow v + D^2 \\
        x &\leftarrow x + \eta_g\, m / (\sqrt{v} + \tau)

    Args:
        lr: eta_l, the local step size.
        server_lr: eta_g, the server's step size.
        beta1: beta_1, the decay of the first moment.
        tau: tau, added to the root; v starts at its square.

    Example:
        >>> import undrift as ud
        >>> run = ud.run(ud.FedAdagrad(lr=0.01), "quadratic", rounds=50, steps=5)
        >>> run.history.last["gap"] < 1
        True

    References:
        Reddi, Charles, Zaheer, Garrett, Rush, Konečný, Kumar and McMahan, "Adaptive Federated
        Optimization", ICLR 2021, arXiv:2003.00295, Algorithm 2.
    """

    title = "Adagrad on the server"
    beta1: Fraction = 0.0

    def second_moment(self, v: Vec, d2: Vec) -> Vec:
        return v + d2
