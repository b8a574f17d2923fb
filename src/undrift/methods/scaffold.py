from typing import Literal

from undrift.core import Cohort, Local, Message, Method, OrTheory, Positive, State, Vec
from undrift.theory import Known, rules, steps


def step_size(method: "Scaffold", known: Known) -> float:
    server_lr = max(method.server_lr, 1.0)  # the theorems assume eta_g >= 1
    L, K, fraction = known.L, known.steps, known.fraction
    if not known.convex:
        return steps.scaffold_nonconvex(L, K, server_lr, fraction)
    if known.mu > 0:
        return steps.scaffold_strongly_convex(L, known.mu, K, server_lr, fraction)
    return steps.scaffold_convex(L, K, server_lr)


class Scaffold(Method):
    r"""SCAFFOLD: local steps corrected by control variates.

    Clients take K steps from y = x and renew their control variate; then the server moves:

    .. math::

        y &\leftarrow y - \eta_l (g_i(y) - c_i + c) \\
        c_i^+ &= c_i - c + (x - y_i) / (K \eta_l)
            & \text{option II; } \nabla f_i(x) \text{ in option I} \\
        x &\leftarrow x + \eta_g\, \mathrm{mean}_S (y_i - x) \\
        c &\leftarrow c + (|S|/N)\, \mathrm{mean}_S (c_i^+ - c_i)

    Args:
        lr: eta_l, the local step size.
        server_lr: eta_g, the server's step size. Below 1, where no theorem holds, lr = "theory" is
            that of 1.
        option: How a client renews its control variate; I costs one more gradient.

    Example:
        >>> import undrift as ud
        >>> run = ud.run(ud.Scaffold(lr=0.02), "quadratic", rounds=100, steps=5)
        >>> run.history.last["gap"] < 1e-6
        True

    References:
        Karimireddy, Kale, Mohri, Reddi, Stich and Suresh, "SCAFFOLD: Stochastic Controlled
        Averaging for Federated Learning", ICML 2020, arXiv:1910.06378, Algorithm 1.
    """

    title = "Stochastic controlled averaging"
    paper = "Karimireddy et al., ICML 2020, Algorithm 1"
    exact = True
    needs_mean = "the server's c must stay the mean of the clients' c_i"
    prescribed = rules(lr=step_size)

    lr: OrTheory[Positive]
    server_lr: Positive = 1.0
    option: Literal["I", "II"] = "II"

    class Server(State):
        x: Vec
        c: Vec

    class Client(State):
        c: Vec

    class Down(Message):
        x: Vec
        c: Vec

    class Up(Message):
        dy: Vec
        dc: Vec

    def server(self, x0: Vec) -> Server:
        return self.Server(x=x0, c=0 * x0)

    def client(self, x0: Vec) -> Client:
        return self.Client(c=0 * x0)

    def work(self, me: Client, got: Down, f: Local) -> tuple[Client, Up]:
        y = f.sgd(got.x, self.lr, lambda y, grad: grad(y) - me.c + got.c)
        if self.option == "I":
            c = f.grad(got.x)
        else:
            c = me.c - got.c + (got.x - y) / (f.steps * self.lr)
        return self.Client(c=c), self.Up(dy=y - got.x, dc=c - me.c)

    def merge(self, s: Server, up: Up, cohort: Cohort) -> Server:
        return self.Server(x=s.x + self.server_lr * up.dy, c=s.c + cohort.fraction * up.dc)

    @property
    def needs_sgd(self) -> str:
        if self.option == "I":
            return ""
        return "option II takes (x - y) / (K lr) for the mean of the gradients: use option I"
