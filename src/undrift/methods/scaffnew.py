from undrift.core import Message, Positive, State, Vec
from undrift.methods.bases import RandomCommunication


class Scaffnew(RandomCommunication):
    """Every step: y_i <- y_i - lr (g_i(y_i) - h_i).

    With probability p, one coin for all: x = mean_i y_i;  h_i <- h_i + (p/lr) (x - y_i);  y_i = x.

    The mean arrives with the next round, so a client keeps its last y_i until then.

    lr  gamma, local step, at most 1/L
    p   probability of communicating after a step; 1/sqrt(L/mu) is optimal
    """

    title = "ProxSkip for federated learning"
    paper = "Mishchenko et al., ICML 2022"
    exact = True

    lr: Positive

    class Server(State):
        x: Vec

    class Client(State):
        y: Vec
        h: Vec

    class Down(Message):
        x: Vec

    class Up(Message):
        y: Vec

    def client(self, x0):
        return self.Client(y=x0, h=0 * x0)

    def send(self, s):
        return self.Down(x=s.x)

    def work(self, me, got, f):
        h = me.h + self.p / self.lr * (got.x - me.y)
        y = f.sgd(got.x, self.lr, lambda y, grad: grad(y) - h)
        return self.Client(y=y, h=h), self.Up(y=y)

    def merge(self, s, up, cohort):
        return self.Server(x=up.y)
