from typing import Literal

from undrift.core import Message, Method, NonNegative, Positive, State, Vec
from undrift.methods.bases import AnchorGradient


class LocalSolver(Method, abstract=True):
    """Minimises F(y) = f_i(y) - <h, y> + (lam/2) |y - x|^2 from x, exactly or by (fast) gradient
    descent.

    Fast gradient descent is y <- v - lr grad F(v), then v = y plus constant momentum; without
    momentum it is plain.
    With ``stop``, Corollary 5: until |grad F(v)|^2 <= lam (mu + lam) / (8 (r+1) (r+2)) |v - x|^2 in
    round r. The rule
    speaks of v, which is then returned; what is known of a given number of steps is known of y.
    """

    lam: NonNegative
    lr: Positive
    mu: NonNegative = 0.0
    solver: Literal["gd", "fgd", "exact"] = "gd"
    stop: bool = True

    class Ruled(State):
        v: Vec
        y: Vec
        g: Vec

    class Fixed(State):
        y: Vec
        v: Vec
        g: Vec

    def minimise(self, f, x, h, g):
        """``g`` is grad F at x."""
        if self.solver == "exact":
            return f.solve(h + self.lam * x, self.lam)
        q = (self.lr * (self.mu + self.lam)) ** 0.5
        momentum = (1 - q) / (1 + q) if self.solver == "fgd" else 0.0

        def step(s, grad):
            y = s.v - self.lr * s.g
            v = y + momentum * (y - s.y) if momentum else y
            return s.replace(v=v, y=y, g=grad(v) - h + self.lam * (v - x))

        if self.stop:
            return f.descend(self.Ruled(v=x, y=x, g=g), step, until=self.accurate(f, x, g)).v
        return f.descend(self.Fixed(v=x, y=x, g=g), step).y

    def accurate(self, f, x, g):
        """The test that ends the local solver."""
        ratio = self.lam * (self.mu + self.lam) / (8 * (f.round + 1) * (f.round + 2))
        return lambda s: norm2(s.g) <= ratio * norm2(s.v - x)


class DANEPlus(LocalSolver, AnchorGradient):
    """DANE with an inexact local solver:  h_i = grad f_i(x) - grad f(x)  (1);  x <- mean_i y_i, or
    y_j of a random j.

    y_i minimises f_i(y) - <h_i, y> + (lam/2) |y - x|^2, by gradient descent until Corollary 5's
    rule or ``steps``.

    lam      lambda; 2 delta_A is enough for convex problems
    lr       step of the local solver, 1/(L + lam)
    mu       strong convexity, used by the stopping rule and by fast gradient descent
    solver   gd, fgd (fast gradient descent) or exact
    stop     whether the rule of Corollary 5 ends the local solver before ``steps``
    average  avg, or rand: only one random client solves
    """

    title = "DANE with inexact solvers"
    paper = "Jiang et al., ICML 2024, Algorithm 1, control variate (1)"
    exact = True
    affine = False

    average: Literal["avg", "rand"] = "avg"

    @property
    def who(self):  # type: ignore[override]
        return "one" if self.average == "rand" else "all"

    def work(self, me, got, f):
        y = self.minimise(f, x=me.x, h=me.g - got.g, g=got.g)
        return me, self.Up(y=y)


class DANEPlusDual(LocalSolver):
    """DANE+ in one exchange: the control variate (B.82) h_i <- h_i + m (x - y_i) is renewed by the
    client alone.

    The mean x arrives with the next round; until then a client keeps h_i - m y_i.

    lam     lambda; sqrt(mu L) for strongly convex problems
    m       step of the control variate; lambda in Corollary 32
    lr      step of the local solver, 1/(L + lam)
    mu      strong convexity, used by the stopping rule and by fast gradient descent
    solver  gd, fgd (fast gradient descent) or exact
    stop    whether the rule of Corollary 5 ends the local solver before ``steps``
    """

    title = "DANE+ with a local control variate"
    paper = "Jiang et al., ICML 2024, Algorithm 1, control variate (B.82)"
    participation = "full"
    exact = True
    affine = False

    m: NonNegative

    class Server(State):
        x: Vec

    class Client(State):
        h_my: Vec

    class Down(Message):
        x: Vec

    class Up(Message):
        y: Vec

    def client(self, x0):
        return self.Client(h_my=-self.m * x0)

    def send(self, s):
        return self.Down(x=s.x)

    def work(self, me, got, f):
        h = me.h_my + self.m * got.x
        g = None if self.solver == "exact" else f.grad(got.x) - h
        y = self.minimise(f, x=got.x, h=h, g=g)
        return self.Client(h_my=h - self.m * y), self.Up(y=y)

    def merge(self, s, up, cohort):
        return self.Server(x=up.y)


def norm2(v: Vec) -> Vec:
    return (v * v).sum(-1, keepdim=True)
