from __future__ import annotations

from undrift.core import Cohort, Grad, Local, Message, Method, Phase, Scratch, State, Vec
from undrift.core.params import OrAuto, Positive, Probability


class MimeMVR(Method):
    r"""MimeMVR: Mime with momentum variance reduction as its base optimiser.

    First the cohort sends its gradients at x and at the previous point x', with means c(x) and
    c(x'). Then clients take K steps from y = x, the gradients at y and x on one mini-batch:

    .. math::

        g &= g_i(y) - g_i(x) + c(x), \text{ or } g_i(y) \text{ when lite} \\
        y &\leftarrow y - \eta (a g + (1 - a) m + (1 - a) (g_i(y) - g_i(x)))

    and the server renews its momentum and averages:

    .. math::

        m &\leftarrow a\, c(x) + (1 - a) (m + c(x) - c(x')) \\
        x &\leftarrow \mathrm{mean}_S\, y_i

    with m = c(x) in the first round. Clients send h = c(x) - (1 - a) c(x'), and c(x) only where
    others need it, as m becomes h + (1 - a) m. They are sent what is common to their steps,
    u = (1 - a) m, and a c(x) with it unless lite.

    Args:
        lr: eta, the local step size.
        a: a, the weight of the fresh gradient.
        lite: Use MimeLite's gradient, which keeps a bias.
        fresh: Renew m before the local steps, which makes it FedLin on full cohorts; otherwise
            after them, as fedjax does for Mime.

    Example:
        >>> import undrift as ud
        >>> run = ud.run(ud.MimeMVR(lr=0.02), "quadratic", rounds=100, steps=5)
        >>> run.history.last["gap"] < 1e-6
        True

    References:
        Karimireddy, Jaggi, Kale, Mohri, Reddi, Stich and Suresh, "Breaking the Centralized Barrier
        for Cross-Device Federated Learning", NeurIPS 2021, arXiv:2008.03606.
    """

    title = "Mime with momentum variance reduction"
    paper = "Karimireddy et al., NeurIPS 2021"
    exact = True
    robust = True
    needs_sgd = ""
    provisional = (
        "derived from Mime and MVR; whether m is renewed before or after the local steps is not "
        "confirmed"
    )

    lr: OrAuto[Positive]
    a: Probability = 0.5
    lite: bool = False
    fresh: bool = False

    class Server(State):
        x: Vec
        before: Vec
        m: Vec
        m_next: Scratch
        u: Scratch

    class Client(State):
        x: Scratch

    class Anchor(Phase):
        class Down(Message):
            x: Vec
            before: Vec

        class Lite(Message):
            h: Vec

        class Whole(Lite):
            c: Vec

        @property
        def Up(self) -> type[Lite]:  # type: ignore[override]
            return self.Lite if self.lite else self.Whole

        def work(self, me: MimeMVR.Client, got: Down, f: Local) -> tuple[MimeMVR.Client, Lite]:
            c = f.grad(got.x)
            h = c - (1 - self.a) * f.grad(got.before) if f.round else c
            return me.replace(x=got.x), self.Lite(h=h) if self.lite else self.Whole(c=c, h=h)

        def merge(self, s: MimeMVR.Server, up: Whole, cohort: Cohort) -> MimeMVR.Server:
            m_next = up.h + (1 - self.a) * s.m
            u = (1 - self.a) * (m_next if self.fresh or cohort.round == 0 else s.m)
            return s.replace(m_next=m_next, u=u if self.lite else u + self.a * up.c)

    class Down(Message):
        u: Vec

    class Up(Message):
        y: Vec

    def server(self, x0: Vec) -> Server:
        return self.Server(x=x0, before=x0, m=0 * x0)

    def work(self, me: Client, got: Down, f: Local) -> tuple[Client, Up]:
        def direction(y: Vec, grad: Grad) -> Vec:
            here = grad(y)
            change = here - grad(me.x)
            return got.u + (self.a * here + (1 - self.a) * change if self.lite else change)

        return me, self.Up(y=f.sgd(me.x, self.lr, direction))

    def merge(self, s: Server, up: Up, cohort: Cohort) -> Server:
        return self.Server(x=up.y, before=s.x, m=s.m_next)

    def centre(self, s: Server) -> Up:
        return self.Up(y=s.x)
