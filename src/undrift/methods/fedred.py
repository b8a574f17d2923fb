from __future__ import annotations

from typing import Literal

from undrift.core import Grad, Local, Method, NonNegative, OrTheory, Positive, Reduction, State, Vec
from undrift.methods._shared import (
    AnchorGradient,
    Averaging,
    RandomCommunication,
    averaged,
    similarity,
)
from undrift.theory import Known, Promise, Start, bounds, probability, rules, steps


class DoublyRegularised(Method, abstract=True):
    """Local steps of FedRed from y, towards both y and the reference point x.

    The exact step is argmin f_i(z) - <h, z> + (eta/2) |z - y|^2 + (lam/2) |z - x|^2; the step gd is
    the same with f_i linearised at y, in closed form.
    """

    proximal_weights = ("eta", "lam")
    needs_sgd = "its steps minimise a local model, and have no lr"

    eta: OrTheory[Positive]
    lam: OrTheory[NonNegative]
    solver: Literal["gd", "exact"] = "gd"
    reset_local: bool = False
    average: Literal["avg", "rand"] = "avg"

    @property
    def reduction(self) -> Reduction:
        return "pick" if self.average == "rand" else "mean"

    def minimising(self) -> str:
        return "solver" if self.solver == "exact" else ""

    def local(self, f: Local, y: Vec, x: Vec, h: Vec) -> Vec:
        """The last of the local steps, with control variate h."""
        eta, lam = self.eta, self.lam

        def exact(y: Vec, grad: Grad) -> Vec:
            return f.solve(h + eta * y + lam * x, eta + lam)

        def linearised(y: Vec, grad: Grad) -> Vec:
            return (eta * y + lam * x - (grad(y) - h)) / (eta + lam)

        start = x if self.reset_local else y
        return f.descend(start, exact if self.solver == "exact" else linearised)


def weight(method: DoublyRegularised, known: Known) -> float:
    return similarity(method.average, known)


def own_weight(method: DoublyRegularised, known: Known) -> float:
    L, lam, convex = known.L, method.lam, averaged(method.average, known)
    if method.solver == "exact":
        return (steps.fedred_exact_eta if convex else steps.fedred_exact_eta_nonconvex)(L, lam)
    if convex:
        noise = L if known.stochastic else 0.0  # eps = sigma^2/L
        return steps.fedred_gd_eta(L, known.mu, lam, noise)
    return steps.fedred_gd_eta_nonconvex(L, lam)  # with noise too: (B.223) holds for any eta > 3L


def communication(method: FedRed | FedRedDual, known: Known) -> float:
    mu, eta, lam, convex = known.mu, method.eta, method.lam, averaged(method.average, known)
    if method.solver == "exact":
        p = steps.fedred_exact_p(mu, eta, lam)
        return probability(p if convex else steps.fedred_exact_p_nonconvex(eta, lam))
    if convex:
        return probability(steps.fedred_gd_p(mu, eta, lam))
    return probability(steps.fedred_gd_p_nonconvex(known.L, lam))


RULES = rules(lam=weight, eta=own_weight, p=communication)


def last(method: FedRed, known: Known, start: Start, iterations: int) -> float:
    """Theorem 9 bounds (mu/4) |x - x*|^2, and f is smooth."""
    mu = known.strong
    bound = bounds.fedred_gd(mu, method.eta, iterations, start.distance2)
    return 2 * known.L_mean / mu * bound


class FedRed(DoublyRegularised, RandomCommunication, AnchorGradient):
    r"""FedRed: local steps regularised towards the client's own point and the server's.

    Every local step of client i, linearised (gd, Algorithm 3) or exact (Algorithm 2), is

    .. math::

        y_i &\leftarrow (\eta y_i + \lambda x - g_i(y_i) + h_i) / (\eta + \lambda)
            & \text{gd} \\
        y_i &\leftarrow \mathrm{argmin}_y\; f_i(y) - \langle h_i, y \rangle
            + \tfrac{\eta}{2} \|y - y_i\|^2 + \tfrac{\lambda}{2} \|y - x\|^2
            & \text{exact}

    With probability p after a step, one coin for all clients, they communicate:

    .. math::

        x &\leftarrow \mathrm{mean}_i\, y_i \\
        h_i &= \nabla f_i(x) - \nabla f(x)

    Args:
        eta: eta, the weight towards the client's own last point; about L.
        lam: lambda, the weight towards the reference point x; delta_A.
        p: p, the probability of communicating after a step; about lam / eta.
        solver: gd (linearised) or exact.
        reset_local: Restart y_i at x after a communication, as the authors' code does; the paper
            does not.
        average: avg, or rand: the reference point becomes y_j of a random client.

    Example:
        >>> import undrift as ud
        >>> method = ud.FedRed(eta="theory", lam="theory", p="theory")
        >>> run = ud.run(method, "quadratic", rounds=100)
        >>> run.history.last["gap"] < 1e-6
        True

    References:
        Jiang, Rodomanov and Stich, "Federated Optimization with Doubly Regularized Drift
        Correction", ICML 2024, arXiv:2404.08447, Algorithms 2 and 3 with control variate (4).
    """

    title = "Doubly regularised drift correction"
    steering = ("p",)
    paper = "Jiang et al., ICML 2024, Algorithms 2 and 3, control variate (4)"
    exact = True
    robust = False
    needs_mean = "the clients keep their own y_i, whose mean x must be"
    prescribed = RULES
    promise = Promise(
        theorem="Theorem 9",
        per="iterations",
        of=" in expectation",
        fixed={"solver": "gd", "average": "avg", "reset_local": False},
        least=RULES,
        most={"p": communication},
        gap=last,
    )

    class Client(AnchorGradient.Client):
        y: Vec

    def client(self, x0: Vec) -> Client:
        return self.Client(y=x0)

    def work(self, me: Client, got: AnchorGradient.Down, f: Local) -> tuple[Client, Averaging.Up]:
        y = self.local(f, me.y, x=me.x, h=me.g - got.g)
        return self.Client(y=y), self.Up(y=y)


class FedRedDual(DoublyRegularised, RandomCommunication):
    r"""FedRed in one exchange: each client renews its control variate alone.

    Every local step of client i is FedRed's:

    .. math::

        y_i &\leftarrow (\eta y_i + \lambda x - g_i(y_i) + h_i) / (\eta + \lambda)
            & \text{gd} \\
        y_i &\leftarrow \mathrm{argmin}_y\; f_i(y) - \langle h_i, y \rangle
            + \tfrac{\eta}{2} \|y - y_i\|^2 + \tfrac{\lambda}{2} \|y - x\|^2
            & \text{exact}

    With probability p after a step, one coin for all clients, they communicate:

    .. math::

        x &\leftarrow \mathrm{mean}_i\, y_i \\
        h_i &\leftarrow h_i + m (x - y_i)

    With lam = 0, m = p eta and reset_local it is Scaffnew with step 1/eta.

    Args:
        eta: eta, the weight towards the client's own last point; about L.
        lam: lambda, the weight towards the reference point x.
        m: m, the step of the control variate; p eta in the authors' code.
        p: p, the probability of communicating after a step.
        solver: gd (linearised) or exact.
        reset_local: Restart y_i at x after a communication.
        average: avg, or rand: the reference point becomes y_j of a random client.

    Example:
        >>> import undrift as ud
        >>> method = ud.FedRedDual(eta="theory", lam="theory", p="theory", m="theory")
        >>> run = ud.run(method, "quadratic", rounds=100)
        >>> run.history.last["gap"] < 1e-6
        True

    References:
        Jiang, Rodomanov and Stich, "Federated Optimization with Doubly Regularized Drift
        Correction", ICML 2024, arXiv:2404.08447, Algorithms 2 and 3 with control variate (B.116).
    """

    title = "FedRed with a local control variate"
    paper = "Jiang et al., ICML 2024, Algorithms 2 and 3, control variate (B.116)"
    exact = True
    needs_mean = "the clients' h_i must sum to zero, which they do for the mean x alone"
    prescribed = rules(**RULES, m=lambda method, known: steps.fedred_dual_m(method.p, method.eta))

    m: OrTheory[NonNegative]

    class Client(State):
        y: Vec
        h: Vec

    def client(self, x0: Vec) -> Client:
        return self.Client(y=x0, h=0 * x0)

    def work(self, me: Client, got: Method.Down, f: Local) -> tuple[Client, Averaging.Up]:
        h = me.h + self.m * (got.x - me.y)
        y = self.local(f, me.y, x=got.x, h=h)
        return self.Client(y=y, h=h), self.Up(y=y)
