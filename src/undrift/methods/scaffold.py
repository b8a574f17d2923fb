from typing import Literal

from undrift.core import Message, Method, Positive, State, Vec


class Scaffold(Method):
    """Clients: y = x, then K times y <- y - lr (g_i(y) - c_i + c).

    Control variates: option I, c_i+ = grad f_i(x); option II, c_i+ = c_i - c + (x - y_i) / (K lr).
    Server: x <- x + server_lr mean_S (y_i - x);  c <- c + (|S|/N) mean_S (c_i+ - c_i).

    lr         eta_l, local step
    server_lr  eta_g, server step
    option     how a client renews its control variate; I costs one more gradient
    """

    title = "Stochastic controlled averaging"
    paper = "Karimireddy et al., ICML 2020, Algorithm 1"
    exact = True

    lr: Positive
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

    def server(self, x0):
        return self.Server(x=x0, c=0 * x0)

    def client(self, x0):
        return self.Client(c=0 * x0)

    def send(self, s):
        return self.Down(x=s.x, c=s.c)

    def work(self, me, got, f):
        y = f.sgd(got.x, self.lr, lambda y, grad: grad(y) - me.c + got.c)
        if self.option == "I":
            c = f.grad(got.x)
        else:
            c = me.c - got.c + (got.x - y) / (f.steps * self.lr)
        return self.Client(c=c), self.Up(dy=y - got.x, dc=c - me.c)

    def merge(self, s, up, cohort):
        return self.Server(x=s.x + self.server_lr * up.dy, c=s.c + cohort.fraction * up.dc)
