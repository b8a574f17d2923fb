from undrift.core import Message, Probability, State, Vec
from undrift.methods.fedavg import FedAvg


class FedCM(FedAvg):
    """Clients mix the last global direction into every step:  y <- y - lr (alpha g_i(y) + (1 -
    alpha) d).

    Server: d <- mean_S (x - y_i) / (lr K);  x <- x + server_lr mean_S (y_i - x).

    lr         eta_l, local step
    alpha      weight of the client's own gradient; 1 is FedAvg
    server_lr  eta_g, server step
    """

    title = "Client-level momentum"
    paper = "Xu et al., 2021"

    alpha: Probability = 0.1

    class Server(State):
        x: Vec
        d: Vec

    class Down(Message):
        x: Vec
        d: Vec

    def server(self, x0):
        return self.Server(x=x0, d=0 * x0)

    def send(self, s):
        return self.Down(x=s.x, d=s.d)

    def work(self, me, got, f):
        y = f.sgd(got.x, self.lr, lambda y, grad: self.alpha * grad(y) + (1 - self.alpha) * got.d)
        return me, self.Up(dy=y - got.x)

    def merge(self, s, up, cohort):
        return self.Server(x=s.x + self.server_lr * up.dy, d=-up.dy / (self.lr * cohort.steps))
