from __future__ import annotations

from undrift.core import Cohort, Grad, Local, Message, Method, Phase, Scratch, State, Vec
from undrift.core.params import Fraction, OrAuto, Positive


class FrozenMomentum(Method, abstract=True):
    """Local steps along (1 - beta) g + beta m; the server renews m from c, a mean of gradients."""

    paper = "Karimireddy et al., NeurIPS 2021"

    lr: OrAuto[Positive]
    beta: Fraction = 0.9
    server_lr: Positive = 1.0

    class Server(State):
        x: Vec
        m: Vec

    def server(self, x0: Vec) -> Server:
        return self.Server(x=x0, m=0 * x0)

    def move(self, s: Server, dy: Vec, c: Vec) -> Server:
        """x and m after the mean move dy of the cohort."""
        m = (1 - self.beta) * c + self.beta * s.m
        return self.Server(x=s.x + self.server_lr * dy, m=m)


class MimeLite(FrozenMomentum):
    r"""MimeLite: local momentum steps with the server's momentum, frozen during the round.

    Clients take K steps from y = x and also send their gradient at x:

    .. math::

        y &\leftarrow y - \eta ((1 - \beta) g_i(y) + \beta m) \\
        x &\leftarrow x + \eta_g\, \mathrm{mean}_S (y_i - x) \\
        m &\leftarrow (1 - \beta)\, \mathrm{mean}_S \nabla f_i(x) + \beta m

    where the gradients in m are at the x that was sent.

    Args:
        lr: eta, the local step size.
        beta: beta, the momentum.
        server_lr: eta_g, the server's step size.

    Example:
        >>> import undrift as ud
        >>> run = ud.run(ud.MimeLite(lr=0.02, beta=0.5), "quadratic", rounds=50, steps=5)
        >>> 1e-4 < run.history.last["gap"] < 1e-2
        True

    References:
        Karimireddy, Jaggi, Kale, Mohri, Reddi, Stich and Suresh, "Breaking the Centralized Barrier
        for Cross-Device Federated Learning", NeurIPS 2021, arXiv:2008.03606.
    """

    title = "Mimicking centralised momentum, without correction"
    robust = True
    needs_sgd = ""

    class Down(Message):
        x: Vec
        m: Vec

    class Up(Message):
        dy: Vec
        c: Vec

    def work(self, me: State, got: Down, f: Local) -> tuple[State, Up]:
        y = f.sgd(got.x, self.lr, lambda y, grad: (1 - self.beta) * grad(y) + self.beta * got.m)
        return me, self.Up(dy=y - got.x, c=f.grad(got.x))

    def merge(self, s: FrozenMomentum.Server, up: Up, cohort: Cohort) -> FrozenMomentum.Server:
        return self.move(s, up.dy, up.c)


class Mime(FrozenMomentum):
    r"""Mime: MimeLite whose local gradients are corrected by the cohort's.

    First the cohort sends its gradients at x, whose mean is c. Then clients take K steps from
    y = x, the gradients at y and x on one mini-batch:

    .. math::

        g &= g_i(y) - g_i(x) + c \\
        y &\leftarrow y - \eta ((1 - \beta) g + \beta m) \\
        x &\leftarrow x + \eta_g\, \mathrm{mean}_S (y_i - x) \\
        m &\leftarrow (1 - \beta) c + \beta m

    The momentum m is frozen during the round.

    Args:
        lr: eta, the local step size.
        beta: beta, the momentum.
        server_lr: eta_g, the server's step size.

    Example:
        >>> import undrift as ud
        >>> run = ud.run(ud.Mime(lr=0.02, beta=0.5), "quadratic", rounds=150, steps=5)
        >>> run.history.last["gap"] < 1e-6
        True

    References:
        Karimireddy, Jaggi, Kale, Mohri, Reddi, Stich and Suresh, "Breaking the Centralized Barrier
        for Cross-Device Federated Learning", NeurIPS 2021, arXiv:2008.03606.
    """

    title = "Mimicking centralised momentum"
    exact = True
    robust = True
    needs_sgd = ""

    class Server(FrozenMomentum.Server):
        c: Scratch

    class Client(State):
        x: Scratch

    class Anchor(Phase):
        class Up(Message):
            c: Vec

        def work(self, me: Mime.Client, got: Phase.Down, f: Local) -> tuple[Mime.Client, Up]:
            return me.replace(x=got.x), self.Up(c=f.grad(got.x))

        def merge(self, s: Mime.Server, up: Up, cohort: Cohort) -> Mime.Server:
            return s.replace(c=up.c)

    class Down(Message):
        m: Vec
        c: Vec

    class Up(Message):
        dy: Vec

    def work(self, me: Client, got: Down, f: Local) -> tuple[Client, Up]:
        def direction(y: Vec, grad: Grad) -> Vec:
            g = grad(y) - grad(me.x) + got.c
            return (1 - self.beta) * g + self.beta * got.m

        return me, self.Up(dy=f.sgd(me.x, self.lr, direction) - me.x)

    def merge(self, s: Server, up: Up, cohort: Cohort) -> FrozenMomentum.Server:
        return self.move(s, up.dy, s.c)
