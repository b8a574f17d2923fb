from undrift.core import (
    Cohort,
    Fraction,
    Local,
    Message,
    Method,
    NonNegative,
    OrAuto,
    Positive,
    State,
    Vec,
)


class AcceleratedServer(Method, abstract=True):
    """FedACG's server, for any client rule.

    It sends phi = x + lam m; then m becomes lam m + mean_S (y_i - phi), and x becomes x + m. A
    subclass writes ``work``, which starts at ``got.x`` (phi) and uploads ``dy = y - got.x``.
    """

    weighted = True
    robust = True

    lam: Fraction

    class Server(State):
        x: Vec
        m: Vec

    class Up(Message):
        dy: Vec

    def server(self, x0: Vec) -> Server:
        return self.Server(x=x0, m=0 * x0)

    def send(self, s: Server) -> Method.Down:
        return self.Down(x=s.x + self.lam * s.m)

    def merge(self, s: Server, up: Up, cohort: Cohort) -> Server:
        m = self.lam * s.m + up.dy
        return self.Server(x=s.x + m, m=m)


class FedACG(AcceleratedServer):
    r"""FedACG: clients start from a point that looks ahead along the server's momentum.

    The server sends :math:`\phi = x + \lambda m`, from which clients take K regularised steps:

    .. math::

        y &\leftarrow y - \eta (g_i(y) + \beta (y - \phi)) \\
        m &\leftarrow \lambda m + \mathrm{mean}_S (y_i - \phi) \\
        x &\leftarrow x + m, \text{ which is } \mathrm{mean}_S\, y_i

    Args:
        lr: eta, the local step size.
        lam: lambda, the momentum of the server; 0 is FedProx.
        beta: beta, the weight of the proximal term.

    Example:
        >>> import undrift as ud
        >>> run = ud.run(ud.FedACG(lr=0.01, lam=0.5), "quadratic", rounds=50, steps=5)
        >>> 1e-4 < run.history.last["gap"] < 1e-2  # drift leaves a gap
        True

    References:
        Kim, Kim and Han, "Communication-Efficient Federated Learning with Accelerated Client
        Gradient", CVPR 2024, arXiv:2201.03172.
    """

    title = "Accelerated client gradient"
    paper = "Kim et al., CVPR 2024"
    needs_sgd = ""

    lr: OrAuto[Positive]
    lam: Fraction = 0.85
    beta: NonNegative = 0.001

    def work(self, me: State, got: Method.Down, f: Local) -> tuple[State, AcceleratedServer.Up]:
        y = f.sgd(got.x, self.lr, lambda y, grad: grad(y) + self.beta * (y - got.x))
        return me, self.Up(dy=y - got.x)
