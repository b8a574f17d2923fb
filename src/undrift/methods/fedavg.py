from undrift.core import Message, Method, Positive, State, Vec


class FedAvg(Method):
    """Clients: y = x, then K times y <- y - lr g_i(y).  Server: x <- x + server_lr mean_S (y_i -
    x).

    lr         eta_l, local step
    server_lr  eta_g, server step
    """

    title = "Federated averaging"
    weighted = True
    paper = "McMahan et al., AISTATS 2017"

    lr: Positive
    server_lr: Positive = 1.0

    class Server(State):
        x: Vec

    class Down(Message):
        x: Vec

    class Up(Message):
        dy: Vec

    def send(self, s):
        return self.Down(x=s.x)

    def work(self, me, got, f):
        y = f.sgd(got.x, self.lr)
        return me, self.Up(dy=y - got.x)

    def merge(self, s, up, cohort):
        return self.Server(x=s.x + self.server_lr * up.dy)
