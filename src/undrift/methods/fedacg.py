from undrift.core import Fraction, Message, Method, NonNegative, Positive, State, Vec


class AcceleratedServer(Method, abstract=True):
    """The ACG server, for any client rule: sends phi = x + lam m;  m <- lam m + mean_S (y_i - phi);
    x <- x + m.

    A subclass writes ``work``, which starts at ``got.x`` and uploads ``dy = y - got.x``.
    """

    weighted = True

    lam: Fraction

    class Server(State):
        x: Vec
        m: Vec

    class Down(Message):
        x: Vec

    class Up(Message):
        dy: Vec

    def server(self, x0):
        return self.Server(x=x0, m=0 * x0)

    def send(self, s):
        return self.Down(x=s.x + self.lam * s.m)

    def merge(self, s, up, cohort):
        m = self.lam * s.m + up.dy
        return self.Server(x=s.x + m, m=m)


class FedACG(AcceleratedServer):
    """Server: sends phi = x + lam m;  m <- lam m + mean_S (y_i - phi);  x <- x + m, which is mean_S
    y_i.

    Clients: from phi, K steps on f_i(y) + (beta/2) |y - phi|^2.

    lr    eta, local step
    lam   lambda, momentum of the server; 0 is FedProx
    beta  weight of the proximal term
    """

    title = "Accelerated client gradient"
    paper = "Kim et al., CVPR 2024"

    lr: Positive
    lam: Fraction = 0.85
    beta: NonNegative = 0.001

    def work(self, me, got, f):
        y = f.sgd(got.x, self.lr, lambda y, grad: grad(y) + self.beta * (y - got.x))
        return me, self.Up(dy=y - got.x)
