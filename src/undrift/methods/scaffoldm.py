from undrift.core import Cohort, Local, Message, Method, OrAuto, Positive, Probability, State, Vec


class ScaffoldM(Method):
    r"""SCAFFOLD-M: SCAFFOLD with momentum in the local steps.

    Clients take K steps from y = x; then the server moves:

    .. math::

        y &\leftarrow y - \eta_l (\beta (g_i(y) - c_i + c) + (1 - \beta) m) \\
        c_i^+ &= \text{the mean of the } K \text{ local gradients of client } i \\
        m &\leftarrow \mathrm{mean}_S (x - y_i) / (\eta_l K) \\
        x &\leftarrow x - \gamma m \\
        c &\leftarrow c + (|S|/N)\, \mathrm{mean}_S (c_i^+ - c_i)

    The server sends x and u = beta c + (1 - beta) m, from which a client finds the mean of its
    gradients: c_i + ((x - y_i) / (eta_l K) - u) / beta.

    Args:
        lr: eta_l, the local step size.
        gamma: gamma, the server's step size; K lr is plain averaging.
        beta: beta, the weight of the corrected gradient; 1 with gamma = K lr is SCAFFOLD,
            option II.

    Example:
        >>> import undrift as ud
        >>> run = ud.run(ud.ScaffoldM(lr=0.02, gamma=0.1), "quadratic", rounds=100, steps=5)
        >>> run.history.last["gap"] < 1e-6
        True

    References:
        Cheng, Huang, Wu and Yuan, "Momentum Benefits Non-IID Federated Learning Simply and
        Provably", ICLR 2024, arXiv:2306.16504.
    """

    title = "SCAFFOLD with momentum"
    paper = "Cheng et al., ICLR 2024"
    exact = True
    needs_mean = "the server's c must stay the mean of the clients' c_i"
    needs_sgd = "it takes (x - y) / (K lr) for the mean of its gradients"
    provisional = "the recursion is standard, the theorems' constants could not be confirmed"

    lr: OrAuto[Positive]
    gamma: Positive
    beta: Probability = 0.5

    class Server(State):
        x: Vec
        c: Vec
        m: Vec

    class Client(State):
        c: Vec

    class Down(Message):
        x: Vec
        u: Vec

    class Up(Message):
        m: Vec
        dc: Vec

    def server(self, x0: Vec) -> Server:
        return self.Server(x=x0, c=0 * x0, m=0 * x0)

    def client(self, x0: Vec) -> Client:
        return self.Client(c=0 * x0)

    def send(self, s: Server) -> Down:
        return self.Down(x=s.x, u=self.beta * s.c + (1 - self.beta) * s.m)

    def work(self, me: Client, got: Down, f: Local) -> tuple[Client, Up]:
        y = f.sgd(got.x, self.lr, lambda y, grad: self.beta * (grad(y) - me.c) + got.u)
        m = (got.x - y) / (f.steps * self.lr)
        dc = (m - got.u) / self.beta
        return self.Client(c=me.c + dc), self.Up(m=m, dc=dc)

    def merge(self, s: Server, up: Up, cohort: Cohort) -> Server:
        return self.Server(x=s.x - self.gamma * up.m, c=s.c + cohort.fraction * up.dc, m=up.m)
