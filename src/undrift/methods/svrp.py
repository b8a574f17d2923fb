from __future__ import annotations

from undrift.core import Cohort, Exchange, Local, Message, Method, Phase, Round, State, Vec
from undrift.core.params import OrAuto, Positive, Probability


class SVRP(Method):
    r"""SVRP: variance-reduced proximal point steps on one client at a time.

    One client m, drawn from all, takes the step

    .. math::

        x \leftarrow \mathrm{prox}_{\eta f_m} (x - \eta (\nabla f(w) - \nabla f_m(w)))

    With probability p, and before the first step, all clients renew the anchor: w = x and the
    gradient of f there. The client is sent w and :math:`x - \eta \nabla f(w)`.

    Args:
        eta: eta, the step of the proximal point; mu / (2 delta_A^2).
        p: p, the probability of renewing the anchor; 1/N. 1 is DANE+ with exact solver, random
            averaging and lam = 1/eta.

    Example:
        >>> import undrift as ud
        >>> run = ud.run(ud.SVRP(eta=0.1, p=0.2), "quadratic", rounds=200)
        >>> run.history.last["gap"] < 1e-6
        True

    References:
        Khaled and Jin, "Faster Federated Optimization Under Second-Order Similarity", ICLR 2023,
        arXiv:2209.02257.
    """

    title = "Stochastic variance-reduced proximal point"
    steering = ("p",)
    paper = "Khaled and Jin, ICLR 2023"
    participation = "full"
    exact = True
    needs_mean = "one client's step becomes the model, and no rule can judge one upload"
    solves = True
    needs_sgd = "it takes no local gradient steps"
    step_sizes = ("eta",)
    provisional = "the constants of its inexact version are not confirmed"

    eta: OrAuto[Positive]
    p: Probability

    class Server(State):
        x: Vec
        w: Vec
        g: Vec

    class Renew(Phase):
        class Up(Message):
            g: Vec

        def work(self, me: State, got: Phase.Down, f: Local) -> tuple[State, Up]:
            return me, self.Up(g=f.grad(got.x))

        def merge(self, s: SVRP.Server, up: Up, cohort: Cohort) -> SVRP.Server:
            return s.replace(w=s.x, g=up.g)

    who = "one"

    class Down(Message):
        z: Vec
        w: Vec

    class Up(Message):
        x: Vec

    def server(self, x0: Vec) -> Server:
        return self.Server(x=x0, w=x0, g=0 * x0)

    def phases(self, now: Round) -> list[Exchange]:
        renew = now.number == 0 or now.coin.random() < self.p
        return super().phases(now)[0 if renew else 1 :]

    def send(self, s: Server) -> Down:
        return self.Down(z=s.x - self.eta * s.g, w=s.w)

    def work(self, me: State, got: Down, f: Local) -> tuple[State, Up]:
        return me, self.Up(x=f.solve(got.z / self.eta + f.grad(got.w), 1 / self.eta))

    def merge(self, s: Server, up: Up, cohort: Cohort) -> Server:
        return s.replace(x=up.x)
