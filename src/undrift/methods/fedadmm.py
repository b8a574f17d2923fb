from typing import Literal

from undrift.core import Cohort, Local, Message, Method, OrAuto, Positive, State, Vec


class FedADMM(Method):
    r"""FedADMM: clients minimise an augmented Lagrangian and keep their dual variable.

    Clients take K gradient steps from w = x on
    :math:`f_i(w) + \langle y_i, w - x \rangle + \tfrac{\rho}{2} \|w - x\|^2`; then

    .. math::

        y_i &\leftarrow y_i + \rho (w_i - x) \\
        x &\leftarrow \mathrm{mean}_S (w_i + y_i / \rho) & \text{rule active} \\
        x &\leftarrow x + \eta_g\, \mathrm{mean}_S D_i & \text{rule delta}

    where D_i is the change of w_i + y_i / rho. Rule all is rule delta with eta_g = |S|/N, which
    keeps x at the mean of w_i + y_i / rho over all clients.

    Args:
        lr: eta_l, the local step size.
        rho: rho, the weight of the proximal term.
        rule: active, delta or all: the server's rule.
        server_lr: eta_g, the server's step size under rule delta.

    Example:
        >>> import undrift as ud
        >>> run = ud.run(ud.FedADMM(lr=0.02, rho=1.0), "quadratic", rounds=100, steps=10)
        >>> run.history.last["gap"] < 1e-6
        True

    References:
        Gong, Li and Freris, "FedADMM: A Robust Federated Deep Learning Framework with Adaptivity
        to System Heterogeneity", ICDE 2022, arXiv:2204.03529.
        Wang, Marella and Anderson, "FedADMM: A Federated Primal-Dual Algorithm Allowing Partial
        Participation", 2022, arXiv:2203.15104.
    """

    title = "Federated ADMM"
    paper = "Gong et al., ICDE 2022; Wang et al., 2022"
    exact = True
    needs_mean = "the clients' y_i cancel in the mean of their uploads alone"
    needs_sgd = ""
    provisional = (
        "whether Wang et al. average over the active or over all clients could not be confirmed: "
        "both are here"
    )

    lr: OrAuto[Positive]
    rho: Positive = 0.1
    rule: Literal["active", "delta", "all"] = "active"
    server_lr: Positive = 1.0

    class Client(State):
        w: Vec
        y: Vec

    class Up(Message):
        u: Vec

    def client(self, x0: Vec) -> Client:
        return self.Client(w=x0, y=0 * x0)

    def work(self, me: Client, got: Method.Down, f: Local) -> tuple[Client, Up]:
        w = f.sgd(got.x, self.lr, lambda w, grad: grad(w) + me.y, prox=self.rho)
        y = me.y + self.rho * (w - got.x)
        u = w + y / self.rho
        if self.rule != "active":
            u = u - (me.w + me.y / self.rho)
        return self.Client(w=w, y=y), self.Up(u=u)

    def merge(self, s: Method.Server, up: Up, cohort: Cohort) -> Method.Server:
        if self.rule == "active":
            return self.Server(x=up.u)
        server_lr = cohort.fraction if self.rule == "all" else self.server_lr
        return self.Server(x=s.x + server_lr * up.u)
