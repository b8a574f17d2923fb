from undrift.core import Cohort, Local, Message, Method, OrAuto, Positive, State, Vec


class FedDyn(Method):
    r"""FedDyn: a regulariser that each client adapts to the server's moves.

    Clients take K gradient steps from y = x on
    :math:`f_i(y) - \langle d_i, y \rangle + \tfrac{\alpha}{2} \|y - x\|^2`; then

    .. math::

        d_i &\leftarrow d_i - \alpha (y_i - x) \\
        h &\leftarrow h - \alpha (|S|/N)\, \mathrm{mean}_S (y_i - x) \\
        x &\leftarrow \mathrm{mean}_S\, y_i - h / \alpha

    so that h is the mean of the d_i of all clients.

    Args:
        lr: eta_l, the local step size.
        alpha: alpha, the weight of the regulariser.

    Example:
        >>> import undrift as ud
        >>> run = ud.run(ud.FedDyn(lr=0.02, alpha=1.0), "quadratic", rounds=100, steps=10)
        >>> run.history.last["gap"] < 1e-6
        True

    References:
        Acar, Zhao, Matas Navarro, Mattina, Whatmough and Saligrama, "Federated Learning Based on
        Dynamic Regularization", ICLR 2021, arXiv:2111.04263.
    """

    title = "Dynamic regularisation"
    paper = "Acar et al., ICLR 2021"
    exact = True
    needs_mean = "the server's h must stay the mean of the clients' d_i"
    needs_sgd = ""

    lr: OrAuto[Positive]
    alpha: Positive = 0.1

    class Server(State):
        x: Vec
        h: Vec

    class Client(State):
        d: Vec

    class Up(Message):
        dy: Vec

    def server(self, x0: Vec) -> Server:
        return self.Server(x=x0, h=0 * x0)

    def client(self, x0: Vec) -> Client:
        return self.Client(d=0 * x0)

    def work(self, me: Client, got: Method.Down, f: Local) -> tuple[Client, Up]:
        y = f.sgd(got.x, self.lr, lambda y, grad: grad(y) - me.d, prox=self.alpha)
        return self.Client(d=me.d - self.alpha * (y - got.x)), self.Up(dy=y - got.x)

    def merge(self, s: Server, up: Up, cohort: Cohort) -> Server:
        h = s.h - self.alpha * cohort.fraction * up.dy
        return self.Server(x=s.x + up.dy - h / self.alpha, h=h)
