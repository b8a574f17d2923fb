from typing import Any

from undrift.core import Cohort, Grad, Local, Message, Method, Round, State, Vec
from undrift.core.params import Count, Fraction, OrTheory, Positive
from undrift.theory import Known, NoRule, rules, steps


class PrimalDual(Method, abstract=True):
    """Rounds of primal-dual local work, some of which skip the communication.

    A subclass's oracle minimises f_i(y) + <l_i, y - x> + |y - x|^2 / (2 eta); then l_i grows by
    (y_i - x) / eta, and x_i = y_i + eta l_i. With probability 1 - p, one coin for all, x becomes
    the mean of the x_i; with probability p every client continues from its own x_i.
    """

    paper = "Zhang et al., IEEE Trans. Signal Process. 2021"
    participation = "full"
    step_sizes = ("lr", "eta")
    steering = ("p",)
    equal_steps = True
    exact = True
    needs_mean = "the clients' l_i cancel in the mean of their uploads alone"

    eta: OrTheory[Positive]
    p: Fraction = 0.0

    class Client(State):
        y: Vec
        l: Vec  # noqa: E741

    class Up(Message):
        x: Vec

    def conditions(self) -> dict[str, str]:
        return {"p": "p = 1 never communicates: give a smaller p"} if self.p == 1 else {}

    def blocks(self, now: Round) -> int:
        return int(now.coin.geometric(1 - self.p))

    def work(self, me: Client, got: Method.Down, f: Local) -> tuple[Client, Up]:
        x = got.x
        for r in range(f.blocks_before, f.blocks_before + f.blocks):
            me = self.oracle(me, x, f, r)
            me = me.replace(l=me.l + (me.y - x) / self.eta)
            x = me.y + self.eta * me.l
        return me, self.Up(x=x)

    def merge(self, s: Method.Server, up: Up, cohort: Cohort) -> Method.Server:
        return self.Server(x=up.x)

    def oracle(self, me: Any, x: Vec, f: Local, r: int) -> Any:
        """The client after its r-th round of local work, skipped communications included."""
        raise NotImplementedError


def oracle_step(method: "FedPD", known: Known) -> float:
    """FedAvg's convention for f_i + |y - x|^2/(2 eta), whose smoothness is L + 1/eta."""
    return steps.fedavg(known.L + 1 / method.eta, known.steps)


class FedPD(PrimalDual):
    r"""FedPD with oracle I: gradient steps on an augmented Lagrangian, communication by a coin.

    Clients take K gradient steps from their own last y_i on
    :math:`f_i(y) + \langle l_i, y - x \rangle + \|y - x\|^2 / (2 \eta)`; then

    .. math::

        l_i &\leftarrow l_i + (y_i - x) / \eta \\
        x_i &= y_i + \eta\, l_i

    With probability 1 - p, one coin for all, x becomes the mean of the x_i; otherwise each client
    continues from its own x_i.

    Args:
        lr: eta_1, the local step size; at most 1 / (L + 1/eta), the smoothness of what the oracle
            minimises.
        eta: eta, the inverse weight of the proximal term; below (sqrt(5) - 1) / (4 L).
        p: p, the probability of skipping a communication.
        from_server: Start the local steps at x, as FedSpeed's comparison does.

    Example:
        >>> import undrift as ud
        >>> run = ud.run(ud.FedPD(lr="theory", eta="theory"), "quadratic", rounds=200, steps=5)
        >>> run.history.last["gap"] < 1e-6
        True

    References:
        Zhang, Hong, Dhople, Yin and Liu, "FedPD: A Federated Learning Framework with Adaptivity to
        Non-IID Data", IEEE Transactions on Signal Processing 2021, arXiv:2005.11418, Algorithm 1.
    """

    title = "Federated primal-dual, gradient oracle"
    needs_sgd = ""
    prescribed = rules(eta=lambda method, known: steps.fedpd_eta(known.L), lr=oracle_step)

    lr: OrTheory[Positive]
    from_server: bool = False

    def client(self, x0: Vec) -> PrimalDual.Client:
        return self.Client(y=x0, l=0 * x0)

    def oracle(self, me: PrimalDual.Client, x: Vec, f: Local, r: int) -> PrimalDual.Client:
        start = x if self.from_server else me.y
        y = f.sgd(start, self.lr, lambda y, grad: grad(y) + me.l + (y - x) / self.eta)
        return me.replace(y=y)


def reduced_eta(method: "FedPDVR", known: Known) -> float:
    if method.p:
        raise NoRule(f"is for p = 0, but p is {method.p:g}", "leave out p, or give eta as a number")
    return steps.fedpd_eta_variance_reduced(known.L, known.steps, method.I, known.batch)


class FedPDVR(PrimalDual):
    r"""FedPD with oracle II: variance-reduced local steps.

    From :math:`g = \nabla f_i(y_i)` each I-th time the oracle is called, else from the g carried
    over, clients take K steps from their own last y_i:

    .. math::

        y^+ &= (\eta y + \gamma x - \eta \gamma (g + l_i)) / (\eta + \gamma) \\
        g &\leftarrow g + g_i(y^+) - g_i(y), \text{ both on one mini-batch}

    then, as in FedPD,

    .. math::

        l_i &\leftarrow l_i + (y_i - x) / \eta \\
        x_i &= y_i + \eta\, l_i

    With probability 1 - p, one coin for all, x becomes the mean of the x_i; otherwise each client
    continues from its own x_i.

    Args:
        gamma: gamma, the local step size; above 5 eta.
        eta: eta, the inverse weight of the proximal term; below 1 / (3 (K + sqrt(K I / B)) L) for
            mini-batches of B and p = 0.
        p: p, the probability of skipping a communication.
        I: I, the calls of the oracle from one full gradient to the next; those that no
            communication follows count too.

    Example:
        >>> import undrift as ud
        >>> method = ud.FedPDVR(eta="theory", gamma="theory")
        >>> run = ud.run(method, "quadratic", rounds=200, steps=5)
        >>> run.history.last["gap"] < 1e-4
        True

    References:
        Zhang, Hong, Dhople, Yin and Liu, "FedPD: A Federated Learning Framework with Adaptivity to
        Non-IID Data", IEEE Transactions on Signal Processing 2021, arXiv:2005.11418, Algorithm 1.
    """

    title = "Federated primal-dual, variance-reduced oracle"
    needs_sgd = "its steps are a recursion of gradients, with a step size of its own"
    prescribed = rules(eta=reduced_eta, gamma=lambda method, known: steps.fedpd_gamma(method.eta))

    gamma: OrTheory[Positive]
    I: Count = 1  # noqa: E741

    class Client(PrimalDual.Client):
        g: Vec

    class Point(State):
        y: Vec
        g: Vec

    def client(self, x0: Vec) -> Client:
        return self.Client(y=x0, l=0 * x0, g=0 * x0)

    def oracle(self, me: Client, x: Vec, f: Local, r: int) -> Client:
        eta, gamma = self.eta, self.gamma

        def step(s: FedPDVR.Point, grad: Grad) -> FedPDVR.Point:
            y = (eta * s.y + gamma * x - eta * gamma * (s.g + me.l)) / (eta + gamma)
            return self.Point(y=y, g=s.g + grad(y) - grad(s.y))

        g = f.grad(me.y) if r % self.I == 0 else me.g
        end = f.descend(self.Point(y=me.y, g=g), step)
        return me.replace(y=end.y, g=end.g)
