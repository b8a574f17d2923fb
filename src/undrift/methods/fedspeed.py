from typing import Literal

from undrift.core import Fraction, Message, Method, NonNegative, Positive, State, Vec


class FedSpeed(Method):
    """Clients, K times from x, both gradients on one mini-batch:

    g1 = g_i(y);  g2 = g_i(y + rho g1);  y <- y - lr ((1 - alpha) g1 + alpha g2 - g_i^ + (y - x) /
    lam)
    then g_i^ <- g_i^ - (y - x) / lam, and upload y - lam g_i^.  Server: x <- mean_S of the uploads.
    With server_dual = all, as in the authors' code: x <- mean_S y_i - lam mean_N g_j^.

    lr           eta_l, local step
    lam          lambda, inverse weight of the proximal term
    rho          size of the ascent step
    alpha        weight of the perturbed gradient
    normalise    rho is divided by the norm of g1, as in the experiments; the theory has it constant
    prox         keep the proximal term (the three switches are Table 7's)
    correct      keep the prox-correction g_i^
    perturb      keep the perturbed gradient
    server_dual  whose corrections the server subtracts: those of the active clients, which
                 overshoots where few take
                 part, or of all
    """

    title = "Prox-correction and perturbed gradients"
    paper = "Sun et al., ICLR 2023, Algorithm 1"
    affine = False

    lr: Positive
    lam: Positive = 10.0
    rho: NonNegative = 0.1
    alpha: Fraction = 1.0
    normalise: bool = True
    prox: bool = True
    correct: bool = True
    perturb: bool = True
    server_dual: Literal["active", "all"] = "active"

    class Server(State):
        x: Vec
        g: Vec

    class Client(State):
        g: Vec

    class Down(Message):
        x: Vec

    class Up(Message):
        y: Vec

    def conditions(self):
        return ["the prox-correction needs the proximal term: set prox = true"] * (
            self.correct and not self.prox
        )

    def server(self, x0):
        return self.Server(x=x0, g=0 * x0)

    def client(self, x0):
        return self.Client(g=0 * x0)

    def send(self, s):
        return self.Down(x=s.x)

    def work(self, me, got, f):
        def direction(y, grad):
            g1 = grad(y)
            if not self.perturb:
                return g1 - me.g
            scale = (
                self.rho / (g1.norm(dim=-1, keepdim=True) + 1e-7) if self.normalise else self.rho
            )
            g2 = grad(y + scale * g1)
            g = g2 if self.alpha == 1 else (1 - self.alpha) * g1 + self.alpha * g2
            return g - me.g

        y = f.sgd(got.x, self.lr, direction, prox=1 / self.lam if self.prox else 0.0)
        if not self.correct:
            return me, self.Up(y=y)
        g = me.g - (y - got.x) / self.lam
        return self.Client(g=g), self.Up(y=y - self.lam * g if self.server_dual == "active" else y)

    def merge(self, s, up, cohort):
        if self.server_dual == "active" or not self.correct:
            return self.Server(x=up.y, g=s.g)
        g = s.g - cohort.fraction * (up.y - s.x) / self.lam
        return self.Server(x=up.y - self.lam * g, g=g)
