from undrift.core import (
    Cohort,
    Grad,
    Local,
    Message,
    Method,
    NonNegative,
    OrAuto,
    Positive,
    State,
    Vec,
)


class FedDC(Method):
    r"""FedDC: clients track their drift h_i and correct their gradients.

    Clients take K steps from y = x, and move by :math:`D_i = y_i - x`:

    .. math::

        y &\leftarrow y - \eta_l (g_i(y) + \alpha (y - (x - h_i)) + c - c_i) \\
        h_i &\leftarrow h_i + D_i \\
        c_i^+ &= c_i - c - D_i / (K \eta_l) \\
        c &\leftarrow c + (|S|/N)\, \mathrm{mean}_S (c_i^+ - c_i) \\
        x &\leftarrow \mathrm{mean}_S\, y_i + \mathrm{mean}_N\, h_j

    The recursion of c_i is that of the authors' code; the paper's, without c_i - c, converges too
    but far more slowly. The server keeps x, c and h = mean_N h_j, and no two vectors would do: h
    sums the clients' moves, x sums h, and c forgets them at the rate |S|/N, so that none of the
    three follows from the others.

    Args:
        lr: eta_l, the local step size.
        alpha: alpha, the weight of the penalty on the drift h_i.

    Example:
        >>> import undrift as ud
        >>> run = ud.run(ud.FedDC(lr=0.02, alpha=0.1), "quadratic", rounds=100, steps=5)
        >>> run.history.last["gap"] < 1e-6
        True

    References:
        Gao, Fu, Li, Chen, Xu and Xu, "FedDC: Federated Learning with Non-IID Data via Local Drift
        Decoupling and Correction", CVPR 2022, arXiv:2203.11751.
    """

    title = "Local drift decoupling and correction"
    paper = "Gao et al., CVPR 2022"
    exact = True
    needs_mean = "the server's c and h must stay the means of the clients' c_i and h_i"
    needs_sgd = "it takes (x - y) / (K lr) for the mean of its gradients"

    lr: OrAuto[Positive]
    alpha: NonNegative = 0.01

    class Server(State):
        x: Vec
        c: Vec
        h: Vec

    class Client(State):
        h: Vec
        c: Vec

    class Down(Message):
        x: Vec
        c: Vec

    class Up(Message):
        dy: Vec
        dc: Vec

    def server(self, x0: Vec) -> Server:
        return self.Server(x=x0, c=0 * x0, h=0 * x0)

    def client(self, x0: Vec) -> Client:
        return self.Client(h=0 * x0, c=0 * x0)

    def work(self, me: Client, got: Down, f: Local) -> tuple[Client, Up]:
        def direction(y: Vec, grad: Grad) -> Vec:
            return grad(y) + self.alpha * (y - got.x + me.h) + got.c - me.c

        dy = f.sgd(got.x, self.lr, direction) - got.x
        dc = -got.c - dy / (f.steps * self.lr)
        return self.Client(h=me.h + dy, c=me.c + dc), self.Up(dy=dy, dc=dc)

    def merge(self, s: Server, up: Up, cohort: Cohort) -> Server:
        h = s.h + cohort.fraction * up.dy
        return self.Server(x=s.x + up.dy + h, c=s.c + cohort.fraction * up.dc, h=h)
