from undrift.core import Local, Method, OrTheory, Positive, State, Vec
from undrift.methods._shared import Averaging, RandomCommunication
from undrift.theory import Known, Promise, Start, bounds, probability, rules, steps


def communication(method: "Scaffnew", known: Known) -> float:
    return probability(steps.scaffnew_p(known.strong, method.lr))


def potential(method: "Scaffnew", known: Known, start: Start, iterations: int) -> float:
    """|x - x*|^2 is a part of the clients' mean share of Psi, and f is smooth."""
    rate = bounds.scaffnew_rate(known.strong, method.lr, method.p)
    first = start.distance2 + bounds.scaffnew_weight(method.lr, method.p) * start.spread2
    return known.L_mean / 2 * rate**iterations * first


class Scaffnew(RandomCommunication):
    r"""Scaffnew (ProxSkip): corrected local steps that rarely communicate.

    Every local step is

    .. math::

        y_i \leftarrow y_i - \gamma (g_i(y_i) - h_i)

    With probability p after it, one coin for all clients, they communicate:

    .. math::

        x &= \mathrm{mean}_i\, y_i \\
        h_i &\leftarrow h_i + (p / \gamma) (x - y_i) \\
        y_i &= x

    The mean arrives with the next round, so a client keeps its last y_i until then.

    Args:
        lr: gamma, the local step size, at most 1/L.
        p: p, the probability of communicating after a step; 1/sqrt(L/mu) is optimal.

    Example:
        >>> import undrift as ud
        >>> run = ud.run(ud.Scaffnew(lr="theory", p="theory"), "quadratic", rounds=100)
        >>> run.history.last["gap"] < 1e-6
        True

    References:
        Mishchenko, Malinovsky, Stich and Richtárik, "ProxSkip: Yes! Local Gradient Steps Provably
        Lead to Communication Acceleration! Finally!", ICML 2022, arXiv:2202.09357, Algorithm 2.
    """

    title = "ProxSkip for federated learning"
    steering = ("p",)
    paper = "Mishchenko et al., ICML 2022"
    exact = True
    needs_mean = "the clients' h_i must sum to zero, which they do for the mean x alone"
    needs_sgd = "h_i changes by p (x - y) / lr, which is about gradients in steps of SGD alone"
    prescribed = rules(lr=lambda method, known: steps.scaffnew_lr(known.L), p=communication)

    promise = Promise(
        theorem="rate of ProxSkip",
        per="iterations",
        of=" in expectation",
        most={"lr": prescribed["lr"]},
        gap=potential,
    )

    lr: OrTheory[Positive]

    class Client(State):
        y: Vec
        h: Vec

    def client(self, x0: Vec) -> Client:
        return self.Client(y=x0, h=0 * x0)

    def work(self, me: Client, got: Method.Down, f: Local) -> tuple[Client, Averaging.Up]:
        h = me.h + self.p / self.lr * (got.x - me.y)
        y = f.sgd(got.x, self.lr, lambda y, grad: grad(y) - h)
        return self.Client(y=y, h=h), self.Up(y=y)
