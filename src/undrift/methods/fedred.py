from typing import Literal

from undrift.core import Message, Method, NonNegative, Positive, Scratch, State, Vec
from undrift.methods.bases import AnchorGradient, RandomCommunication


class DoublyRegularised(Method, abstract=True):
    """One local step of FedRed from y, towards both y and the reference point x.

    exact:  argmin f_i(z) - <h, z> + (eta/2) |z - y|^2 + (lam/2) |z - x|^2
    gd:     the same with f_i linearised at y, in closed form
    """

    eta: Positive
    lam: NonNegative
    solver: Literal["gd", "exact"] = "gd"
    reset_local: bool = False
    average: Literal["avg", "rand"] = "avg"

    @property
    def reduction(self):  # type: ignore[override]
        return "pick" if self.average == "rand" else "mean"

    def local(self, f, y, x, h):
        eta, lam = self.eta, self.lam

        def exact(y, grad):
            return f.solve(h + eta * y + lam * x, eta + lam)

        def linearised(y, grad):
            return (eta * y + lam * x - (grad(y) - h)) / (eta + lam)

        return f.descend(
            x if self.reset_local else y, exact if self.solver == "exact" else linearised
        )


class FedRed(DoublyRegularised, RandomCommunication, AnchorGradient):
    """Every step is a doubly regularised one from y_i (prox weights eta to y_i, lam to x).

    gd:     y_i <- (eta y_i + lam x - g_i(y_i) + h_i) / (eta + lam)
    (Algorithm 3)
    exact:  y_i <- argmin f_i(y) - <h_i, y> + (eta/2) |y - y_i|^2 + (lam/2) |y - x|^2
    (Algorithm 2)
    With probability p, one coin for all clients:  x <- mean_i y_i,  h_i = grad f_i(x) - grad f(x)
    (4).

    eta          weight towards the client's own last point; about L
    lam          lambda, weight towards the reference point; delta_A
    p            probability of communicating after a step; about lam / eta
    solver       gd (linearised) or exact
    reset_local  restart y_i at x after a communication (as the authors' code does; the paper does
                 not)
    average      avg, or rand: the reference point becomes y_j of a random client
    """

    title = "Doubly regularised drift correction"
    paper = "Jiang et al., ICML 2024, Algorithms 2 and 3, control variate (4)"
    exact = True

    class Client(State):
        y: Vec
        x: Scratch
        g: Scratch

    def client(self, x0):
        return self.Client(y=x0)

    def work(self, me, got, f):
        y = self.local(f, me.y, x=me.x, h=me.g - got.g)
        return self.Client(y=y), self.Up(y=y)


class FedRedDual(DoublyRegularised, RandomCommunication):
    """FedRed in one exchange: the control variate (B.116) h_i <- h_i + m (x - y_i) is renewed by
    the client alone.

    With lam = 0, m = p eta and reset_local it is Scaffnew with step 1/eta.

    eta          weight towards the client's own last point; about L
    lam          lambda, weight towards the reference point
    m            step of the control variate; p eta in the authors' code
    p            probability of communicating after a step
    solver       gd (linearised) or exact
    reset_local  restart y_i at x after a communication
    average      avg, or rand: the reference point becomes y_j of a random client
    """

    title = "FedRed with a local control variate"
    paper = "Jiang et al., ICML 2024, Algorithms 2 and 3, control variate (B.116)"
    exact = True

    m: NonNegative

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
        h = me.h + self.m * (got.x - me.y)
        y = self.local(f, me.y, x=got.x, h=h)
        return self.Client(y=y, h=h), self.Up(y=y)

    def merge(self, s, up, cohort):
        return self.Server(x=up.y)
