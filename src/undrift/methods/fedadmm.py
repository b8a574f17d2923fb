from typing import Literal

from undrift.core import Message, Method, Positive, State, Vec


class FedADMM(Method):
    """Clients: K steps from x on f_i(w) + <y_i, w - x> + (rho/2) |w - x|^2;  y_i <- y_i + rho (w_i
    - x).

    active:  x <- mean_S (w_i + y_i / rho);
    delta:   x <- x + server_lr mean_S D_i, where D_i is the change of w_i + y_i / rho;
    all:     the same with server_lr = |S|/N, which keeps x = mean_N (w_i + y_i / rho).

    lr         eta_l, local step
    rho        weight of the proximal term
    rule       the server's rule
    server_lr  eta_g, step of the rule delta
    """

    title = "Federated ADMM"
    paper = "Gong et al., ICDE 2022; Wang et al., 2022"
    exact = True
    provisional = "whether Wang et al. average over the active or over all clients could not be confirmed: both are here"

    lr: Positive
    rho: Positive = 0.1
    rule: Literal["active", "delta", "all"] = "active"
    server_lr: Positive = 1.0

    class Server(State):
        x: Vec

    class Client(State):
        w: Vec
        y: Vec

    class Down(Message):
        x: Vec

    class Up(Message):
        u: Vec

    def client(self, x0):
        return self.Client(w=x0, y=0 * x0)

    def send(self, s):
        return self.Down(x=s.x)

    def work(self, me, got, f):
        w = f.sgd(got.x, self.lr, lambda w, grad: grad(w) + me.y, prox=self.rho)
        y = me.y + self.rho * (w - got.x)
        u = w + y / self.rho
        if self.rule != "active":
            u = u - (me.w + me.y / self.rho)
        return self.Client(w=w, y=y), self.Up(u=u)

    def merge(self, s, up, cohort):
        if self.rule == "active":
            return self.Server(x=up.u)
        return self.Server(
            x=s.x + (cohort.fraction if self.rule == "all" else self.server_lr) * up.u
        )
