from undrift.core import Fraction, Message, Method, Phase, Positive, Scratch, State, Vec


class MimeLite(Method):
    """Clients: K times from x  y <- y - lr ((1 - beta) g_i(y) + beta m), the momentum m frozen
    during the round.

    They also send c_i = grad f_i(x).
    Server: x <- x + server_lr mean_S (y_i - x);  m <- (1 - beta) mean_S c_i + beta m.

    lr         eta, local step
    beta       momentum
    server_lr  eta_g, server step
    """

    title = "Mimicking centralised momentum, without correction"
    paper = "Karimireddy et al., NeurIPS 2021"

    lr: Positive
    beta: Fraction = 0.9
    server_lr: Positive = 1.0

    class Server(State):
        x: Vec
        m: Vec

    class Down(Message):
        x: Vec
        m: Vec

    class Up(Message):
        dy: Vec
        c: Vec

    def server(self, x0):
        return self.Server(x=x0, m=0 * x0)

    def send(self, s):
        return self.Down(x=s.x, m=s.m)

    def work(self, me, got, f):
        y = f.sgd(got.x, self.lr, lambda y, grad: (1 - self.beta) * grad(y) + self.beta * got.m)
        return me, self.Up(dy=y - got.x, c=f.grad(got.x))

    def merge(self, s, up, cohort):
        return self.Server(
            x=s.x + self.server_lr * up.dy, m=(1 - self.beta) * up.c + self.beta * s.m
        )


class Mime(Method):
    """First c = mean_S grad f_i(x).  Then, K times from x with g = g_i(y) - g_i(x) + c on one
    mini-batch:

    y <- y - lr ((1 - beta) g + beta m), the momentum m frozen during the round.
    Server: x <- x + server_lr mean_S (y_i - x);  m <- (1 - beta) c + beta m.

    lr         eta, local step
    beta       momentum
    server_lr  eta_g, server step
    """

    title = "Mimicking centralised momentum"
    paper = "Karimireddy et al., NeurIPS 2021"
    exact = True

    lr: Positive
    beta: Fraction = 0.9
    server_lr: Positive = 1.0

    class Server(State):
        x: Vec
        m: Vec
        c: Scratch

    class Client(State):
        x: Scratch

    class Anchor(Phase):
        class Down(Message):
            x: Vec

        class Up(Message):
            c: Vec

        def send(self, s):
            return self.Down(x=s.x)

        def work(self, me, got, f):
            return self.Client(x=got.x), self.Up(c=f.grad(got.x))

        def merge(self, s, up, cohort):
            return s.replace(c=up.c)

    class Down(Message):
        m: Vec
        c: Vec

    class Up(Message):
        dy: Vec

    def server(self, x0):
        return self.Server(x=x0, m=0 * x0)

    def send(self, s):
        return self.Down(m=s.m, c=s.c)

    def work(self, me, got, f):
        def direction(y, grad):
            g = grad(y) - grad(me.x) + got.c
            return (1 - self.beta) * g + self.beta * got.m

        return me, self.Up(dy=f.sgd(me.x, self.lr, direction) - me.x)

    def merge(self, s, up, cohort):
        return self.Server(
            x=s.x + self.server_lr * up.dy, m=(1 - self.beta) * s.c + self.beta * s.m
        )
