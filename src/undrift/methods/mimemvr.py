from undrift.core import Message, Method, Phase, Positive, Probability, Scratch, State, Vec


class MimeMVR(Method):
    """Mime with momentum variance reduction as its base optimiser.

    First c(x) = mean_S grad f_i(x) and c(x-) at the previous point x-.  Then, K times from x on one mini-batch each:
    y <- y - lr (a g + (1 - a) m + (1 - a) (g_i(y) - g_i(x))),  g = g_i(y) - g_i(x) + c(x), or g_i(y) when lite.
    Server: m <- a c(x) + (1 - a) (m + c(x) - c(x-)), from m = c(x) in the first round;  x <- mean_S y_i.

    lr     eta, local step
    a      weight of the fresh gradient
    lite   MimeLite's gradient, which keeps a bias
    fresh  renew m before the local steps, which makes it FedLin on full cohorts; else after, as fedjax does for Mime
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
        c: Scratch

    class Client(State):
        x: Scratch

    class Anchor(Phase):
        class Down(Message):
            x: Vec
            before: Vec

        class Up(Message):
            c: Vec
            c_before: Vec

        def send(self, s):
            return self.Down(x=s.x, before=s.before)

        def work(self, me, got, f):
            return self.Client(x=got.x), self.Up(c=f.grad(got.x), c_before=f.grad(got.before))

        def merge(self, s, up, cohort):
            m = up.c if cohort.round == 0 else s.m
            m_next = self.a * up.c + (1 - self.a) * (m + up.c - up.c_before)
            return s.replace(m=m_next if self.fresh else m, m_next=m_next, c=up.c)

    class Down(Message):
        m: Vec
        c: Vec

    class Up(Message):
        y: Vec

    def server(self, x0):
        return self.Server(x=x0, before=x0, m=0 * x0)

    def send(self, s):
        return self.Down(m=s.m, c=s.c)

    def work(self, me, got, f):
        def direction(y, grad):
            here = grad(y)
            change = here - grad(me.x)
            g = here if self.lite else change + got.c
            return self.a * g + (1 - self.a) * (got.m + change)

        return me, self.Up(y=f.sgd(me.x, self.lr, direction))

    def merge(self, s, up, cohort):
        return self.Server(x=up.y, before=s.x, m=s.m_next)
