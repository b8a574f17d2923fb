from __future__ import annotations

from undrift.core import Cohort, Exchange, Grad, Local, Message, Method, Phase, Round, State, Vec
from undrift.core.params import OrTheory, Positive
from undrift.theory import Known, Promise, Start, bounds, rules, steps


def step_size(method: FedRecu, known: Known) -> float:
    if known.stochastic:
        convex, other = steps.fedrecu_convex_stochastic, steps.fedrecu_nonconvex_stochastic
    else:
        convex, other = steps.fedrecu_convex, steps.fedrecu_nonconvex
    return (convex if known.convex else other)(known.L, known.steps)


def linear(method: FedRecu, known: Known, start: Start, rounds: int) -> float:
    gamma = bounds.fedrecu_descent_convex(known.L, known.steps, method.lr)
    return start.gap * bounds.fedrecu_linear(known.strong_mean, gamma) ** rounds


class FedRecu(Method):
    r"""FedRecu: a two-step recursion in x that needs no gradient tracker.

    With tau local steps and :math:`g_i(t)` the gradient at :math:`x_i(t)`, the iterations of a
    round are (4) at t = k tau, (5) between, and (3) at t = (k+1) tau - 1:

    .. math::

        (4)\quad w_i &= x_i(t-1) + \alpha (g_i(t) - g_i(t-1)),
            & x(t+1) &= 2 x(t) - \mathrm{mean}_i\, w_i \\
        (5)\quad v_i &= 2 x_i(t) - x_i(t-1) - \alpha (g_i(t) - g_i(t-1)),
            & x_i(t+1) &= v_i \\
        (3)\quad v_i &= \text{the same},
            & x(t+1) &= \mathrm{mean}_i\, v_i

    A round starts at the common point x(k tau). tau = 1 is gradient descent, in one exchange. The
    first round starts from x(0) with x_i(-1) = x(0) and g_i(-1) = 0: any history with
    mean_i (x_i(-1) - alpha g_i(-1)) = x(0) gives the same points, and this one costs no exchange.
    x(t) - x_i(t-1) is as long as the step that made it: where lr changes between two rounds, (4)
    takes x(t) + (lr / old lr) (x_i(t-1) - x(t)) for x_i(t-1).

    Args:
        lr: alpha, the step size.

    Example:
        >>> import undrift as ud
        >>> run = ud.run(ud.FedRecu(lr="theory"), "quadratic", rounds=100, steps=5)
        >>> run.history.last["gap"] < 1e-6
        True

    References:
        "Leveraging Recursive Methods for Efficient Federated Learning", Algorithm 1.
    """

    title = "Recursive federated learning"
    paper = "Leveraging Recursive Methods for Efficient Federated Learning, Algorithm 1"
    participation = "full"
    equal_steps = True
    exact = True
    needs_mean = "the server's x must stay the mean of the clients' x_i - lr g_i"
    needs_sgd = "its recursion is one of gradient steps of length lr"
    prescribed = rules(lr=step_size)
    promise = Promise(theorem="Theorem 1, Remark 2", most=prescribed, gap=linear)

    lr: OrTheory[Positive]

    class Client(State):
        x: Vec
        g: Vec

    class Correct(Phase):
        """(4)"""

        class Up(Message):
            w: Vec

        def work(self, me: FedRecu.Client, got: Phase.Down, f: Local) -> tuple[FedRecu.Client, Up]:
            g = f.grad(got.x, step=0)
            before = me.x + (1 - f.decay) * (got.x - me.x)
            return me.replace(x=got.x, g=g), self.Up(w=before + self.lr * (g - me.g))

        def merge(self, s: Method.Server, up: Up, cohort: Cohort) -> Method.Server:
            return s.replace(x=2 * s.x - up.w)

    class Up(Message):
        v: Vec

    class Recursion(State):
        x: Vec
        before: Vec
        g: Vec

    def client(self, x0: Vec) -> Client:
        return self.Client(x=x0, g=0 * x0)

    def phases(self, now: Round) -> list[Exchange]:
        return super().phases(now)[: 1 if now.steps[0] == 1 else 2]

    def work(self, me: Client, got: Method.Down, f: Local) -> tuple[Client, Up]:
        def step(y: FedRecu.Recursion, grad: Grad) -> FedRecu.Recursion:
            g = grad(y.x)
            return self.Recursion(x=2 * y.x - y.before - self.lr * (g - y.g), before=y.x, g=g)

        end = f.descend(self.Recursion(x=got.x, before=me.x, g=me.g), step, start=1)
        return self.Client(x=end.before, g=end.g), self.Up(v=end.x)

    def merge(self, s: Method.Server, up: Up, cohort: Cohort) -> Method.Server:
        return self.Server(x=up.v)
