from undrift.core import Fraction, Message, Method, Phase, Positive, State, Vec


class CELGD(Method):
    """v <- mean_S grad f_i(x) + (1 - beta) (v - mean_S grad f_i(x-)), x- the previous point; at
    first the mean alone.

    Then one client m, drawn from all, walks K steps from w = x, u = v, each on one mini-batch:
    w+ = w - lr u;  u <- u + g_m(w+) - g_m(w);  and x <- w.  K = 1 is a step along v.

    lr    eta, about 1/L
    beta  weight of the fresh gradient in v; 1 is exact on full cohorts
    """

    title = "Communication-efficient local gradient descent"
    paper = "Patel et al., NeurIPS 2022"
    exact = True
    provisional = "the order of the lines, the output and how many clients walk are not confirmed: the last point, and one"

    lr: Positive
    beta: Fraction = 1.0

    class Server(State):
        x: Vec
        before: Vec
        v: Vec

    class Estimate(Phase):
        class Down(Message):
            x: Vec
            before: Vec

        class Up(Message):
            g: Vec

        def send(self, s):
            return self.Down(x=s.x, before=s.before)

        def work(self, me, got, f):
            g = f.grad(got.x)
            if f.round and self.beta < 1:
                g = g - (1 - self.beta) * f.grad(got.before)
            return me, self.Up(g=g)

        def merge(self, s, up, cohort):
            return s.replace(v=up.g + (1 - self.beta) * s.v)

    class Walk(State):
        w: Vec
        u: Vec

    who = "one"

    class Down(Message):
        x: Vec
        v: Vec

    class Up(Message):
        w: Vec

    def server(self, x0):
        return self.Server(x=x0, before=x0, v=0 * x0)

    def send(self, s):
        return self.Down(x=s.x, v=s.v)

    def work(self, me, got, f):
        def step(s, grad):
            w = s.w - self.lr * s.u
            return self.Walk(w=w, u=s.u + grad(w) - grad(s.w))

        return me, self.Up(w=f.descend(self.Walk(w=got.x, u=got.v), step).w)

    def merge(self, s, up, cohort):
        return self.Server(x=up.w, before=s.x, v=s.v)
