from collections.abc import Callable
from typing import Literal

from undrift.core import Grad, Local, Method, NonNegative, OrTheory, Positive, State, Vec, Who
from undrift.methods._shared import AnchorGradient, Averaging, similarity
from undrift.theory import Known, Promise, bounds, given, rules, steps


class Ruled(State):
    """A point v, the step y before its momentum, and the gradient g of F at v; v is the result."""

    v: Vec
    y: Vec
    g: Vec


class Fixed(State):
    """The same; y is the result."""

    y: Vec
    v: Vec
    g: Vec


Solver = Ruled | Fixed


class LocalSolver(Averaging, abstract=True):
    r"""Minimises a client's regularised function from x, exactly or by (fast) gradient descent.

    .. math::

        F(y) = f_i(y) - \langle h, y \rangle + \tfrac{\lambda}{2} \|y - x\|^2

    Fast gradient descent is y = v - lr grad F(v), then v = y plus constant momentum; without
    momentum it is plain. With ``stop``, Corollary 5 of Jiang et al. ends it in round r = 0, 1, ...
    once |grad F(v)|^2 <= lam (mu + lam) / (8 (r+1) (r+2)) |v - x|^2. The rule speaks of v, which is
    then returned; what is known of a given number of steps is known of y.
    """

    proximal_weights = ("lam",)
    needs_sgd = "its local solver is gradient descent of its own"

    lam: OrTheory[NonNegative]
    lr: OrTheory[Positive]
    mu: OrTheory[NonNegative] = 0.0  # type: ignore[assignment]
    solver: Literal["gd", "fgd", "exact"] = "gd"
    stop: bool = True

    def minimising(self) -> str:
        return "solver" if self.solver == "exact" else ""

    def minimise(self, f: Local, x: Vec, h: Vec, g: Vec | None) -> Vec:
        """The minimiser of F; ``g`` is grad F at x, which the exact solver does without."""
        if self.solver == "exact" or g is None:
            return f.solve(h + self.lam * x, self.lam)
        q = (self.lr * (self.mu + self.lam)) ** 0.5
        momentum = (1 - q) / (1 + q) if self.solver == "fgd" else 0.0

        def step(s: Solver, grad: Grad) -> Solver:
            y = s.v - self.lr * s.g
            v = y + momentum * (y - s.y) if momentum else y
            return s.replace(v=v, y=y, g=grad(v) - h + self.lam * (v - x))

        start: Solver = (Ruled if self.stop else Fixed)(v=x, y=x, g=g)
        until = self.accurate(f, x, g) if self.stop else None
        end = f.descend(start, step, until)
        return end.v if self.stop else end.y

    def accurate(self, f: Local, x: Vec, g: Vec) -> Callable[[Solver], Vec]:
        """The test that ends the local solver."""
        ratio = self.lam * (self.mu + self.lam) / (8 * (f.round + 1) * (f.round + 2))
        return lambda s: norm2(s.g) <= ratio * norm2(s.v - x)


class InexactSolution(LocalSolver, AnchorGradient, abstract=True):
    """DANE's exchange of gradients with an inexact local solver."""

    exact = True
    affine = False

    def work(
        self, me: AnchorGradient.Client, got: AnchorGradient.Down, f: Local
    ) -> tuple[AnchorGradient.Client, Averaging.Up]:
        return me, self.Up(y=self.minimise(f, x=me.x, h=me.g - got.g, g=got.g))


SOLVER = rules(
    lr=lambda method, known: steps.local_solver_lr(known.L, method.lam),
    mu=lambda method, known: known.mu,
)


class DANEPlus(InexactSolution):
    r"""DANE+: DANE with an inexact local solver.

    .. math::

        h_i &= \nabla f_i(x) - \nabla f(x) \\
        y_i &\approx \mathrm{argmin}_y\; f_i(y) - \langle h_i, y \rangle
            + \tfrac{\lambda}{2} \|y - x\|^2 \\
        x &\leftarrow \mathrm{mean}_i\, y_i,\; \text{or } y_j \text{ of a random } j

    The local solver runs until the rule of Corollary 5 is met, in round r = 0, 1, ... and at its
    point v :math:`\|\nabla F_i(v)\|^2 \le \lambda (\mu + \lambda) / (8 (r+1)(r+2)) \|v - x\|^2`,
    or for ``steps`` steps.

    Args:
        lam: lambda, the weight of the proximal term; 2 delta_A is enough for convex problems.
        lr: The step size of the local solver, 1/(L + lam).
        mu: Strong convexity, used by the stopping rule and by fast gradient descent.
        solver: gd, fgd (fast gradient descent) or exact.
        stop: Whether the rule of Corollary 5 ends the local solver before ``steps``.
        average: avg, or rand: only one random client solves.

    Example:
        >>> import undrift as ud
        >>> method = ud.DANEPlus(lam="theory", lr="theory", mu="theory")
        >>> run = ud.run(method, "quadratic", rounds=50, steps=20)
        >>> run.history.last["gap"] < 1e-6
        True

    References:
        Jiang, Rodomanov and Stich, "Federated Optimization with Doubly Regularized Drift
        Correction", ICML 2024, arXiv:2404.08447, Algorithm 1 with control variate (1).
    """

    title = "DANE with inexact solvers"
    paper = "Jiang et al., ICML 2024, Algorithm 1, control variate (1)"
    prescribed = rules(
        lam=lambda method, known: steps.daneplus_lam(similarity(method.average, known)), **SOLVER
    )

    promise = Promise(
        theorem="Theorem 4",
        of=" of the best so far",
        fixed={"solver": "exact", "average": "avg"},  # errors of other solvers are not recorded
        least={"lam": prescribed["lam"]},
        gap=lambda my, known, start, k: bounds.daneplus(known.mu, my.lam, k, start.distance2),
    )

    average: Literal["avg", "rand"] = "avg"

    @property
    def who(self) -> Who:
        return "one" if self.average == "rand" else "all"


def dual_weight(method: "DANEPlusDual", known: Known) -> float:
    if given(method.m):
        return method.m  # Lemma 31 holds for any lambda = m
    return steps.daneplus_dual_lam(known.strong, known.L)


class DANEPlusDual(LocalSolver):
    r"""DANE+ in one exchange: each client renews its control variate alone.

    .. math::

        y_i &\approx \mathrm{argmin}_y\; f_i(y) - \langle h_i, y \rangle
            + \tfrac{\lambda}{2} \|y - x\|^2 \\
        x^+ &= \mathrm{mean}_i\, y_i \\
        h_i &\leftarrow h_i + m (x^+ - y_i)

    The mean arrives with the next round; until then a client keeps h_i - m y_i.

    Args:
        lam: lambda, the weight of the proximal term; sqrt(mu L) for strongly convex problems.
        m: The step of the control variate; lambda in Corollary 32.
        lr: The step size of the local solver, 1/(L + lam).
        mu: Strong convexity, used by the stopping rule and by fast gradient descent.
        solver: gd, fgd (fast gradient descent) or exact.
        stop: Whether the rule of Corollary 5 ends the local solver before ``steps``.

    Example:
        >>> import undrift as ud
        >>> method = ud.DANEPlusDual(lam="theory", m="theory", lr="theory")
        >>> run = ud.run(method, "quadratic", rounds=50, steps=20)
        >>> run.history.last["gap"] < 1e-6
        True

    References:
        Jiang, Rodomanov and Stich, "Federated Optimization with Doubly Regularized Drift
        Correction", ICML 2024, arXiv:2404.08447, Algorithm 1 with control variate (B.82).
    """

    title = "DANE+ with a local control variate"
    paper = "Jiang et al., ICML 2024, Algorithm 1, control variate (B.82)"
    participation = "full"
    exact = True
    needs_mean = "the clients' h_i must sum to zero, which they do for the mean x alone"
    affine = False
    prescribed = rules(lam=dual_weight, m=lambda method, known: method.lam, **SOLVER)

    m: OrTheory[NonNegative]

    class Client(State):
        h_my: Vec

    def client(self, x0: Vec) -> Client:
        return self.Client(h_my=-self.m * x0)

    def work(self, me: Client, got: Method.Down, f: Local) -> tuple[Client, Averaging.Up]:
        h = me.h_my + self.m * got.x
        g = None if self.solver == "exact" else f.grad(got.x) - h
        y = self.minimise(f, x=got.x, h=h, g=g)
        return self.Client(h_my=h - self.m * y), self.Up(y=y)


def norm2(v: Vec) -> Vec:
    return (v * v).sum(-1, keepdim=True)
