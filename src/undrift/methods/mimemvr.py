from undrift.core import Message, Method, Phase, Positive, Probability, Scratch, State, Vec


class MimeMVR(Method):
    """Mime with momentum variance reduction as its base optimiser.

    First c(x) = mean_S grad f_i(x) and c(x-) at the previous point x-.  Then, K times from x on one
    mini-batch each:
    y <- y - lr (a g + (1 - a) m + (1 - a) (g_i(y) - g_i(x))),  g = g_i(y) - g_i(x) + c(x), or
    g_i(y) when lite.
    Server: m <- a c(x) + (1 - a) (m + c(x) - c(x-)), from m = c(x) in the first round;  x <- mean_S
    y_i.

    Clients send h = c(x) - (1 - a) c(x-), and c(x) only where others need it: m <- h + (1 - a) m.
    They are sent what is
    common to their steps, u = (1 - a) m, and a c(x) with it unless lite.

    lr     eta, local step
    a      weight of the fresh gradient
    lite   MimeLite's gradient, which keeps a bias
    fresh  renew m before the local steps, which makes it FedLin on full cohorts; else after, as
           fedjax does for Mime
    """

    title = "Mime with momentum variance reduction"
    paper = "Karimireddy et al., NeurIPS 2021"
    exact = True
    provisional = "derived from Mime and MVR; whether m is renewed before or after the local steps is not confirmed"

    lr: Positive
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

        class Whole(Message):
            c: Vec
            h: Vec

        @property
        def Up(self):
            return self.Lite if self.lite else self.Whole

        def send(self, s):
            return self.Down(x=s.x, before=s.before)

        def work(self, me, got, f):
            c = f.grad(got.x)
            h = c - (1 - self.a) * f.grad(got.before) if f.round else c
            return self.Client(x=got.x), self.Lite(h=h) if self.lite else self.Whole(c=c, h=h)

        def merge(self, s, up, cohort):
            m_next = up.h + (1 - self.a) * s.m
            u = (1 - self.a) * (m_next if self.fresh or cohort.round == 0 else s.m)
            return s.replace(m_next=m_next, u=u if self.lite else u + self.a * up.c)

    class Down(Message):
        u: Vec

    class Up(Message):
        y: Vec

    def server(self, x0):
        return self.Server(x=x0, before=x0, m=0 * x0)

    def send(self, s):
        return self.Down(u=s.u)

    def work(self, me, got, f):
        def direction(y, grad):
            here = grad(y)
            change = here - grad(me.x)
            return got.u + (self.a * here + (1 - self.a) * change if self.lite else change)

        return me, self.Up(y=f.sgd(me.x, self.lr, direction))

    def merge(self, s, up, cohort):
        return self.Server(x=up.y, before=s.x, m=s.m_next)
