from undrift.core import Message, Method, Phase, Positive, Probability, State, Vec


class SVRP(Method):
    """One client m, drawn from all:  x <- prox_{eta f_m} (x - eta (grad f(w) - grad f_m(w))).

    With probability p, and before the first step, all clients renew the anchor: w = x and grad
    f(w).
    The client is sent w and x - eta grad f(w).

    eta  step of the proximal point; mu / (2 delta_A^2)
    p    probability of renewing the anchor; 1/N. 1 is DANE+ with exact solver, random averaging and
         lam = 1/eta
    """

    title = "Stochastic variance-reduced proximal point"
    paper = "Khaled and Jin, ICLR 2023"
    participation = "full"
    exact = True
    solves = True
    provisional = "the constants of its inexact version are not confirmed"

    eta: Positive
    p: Probability

    class Server(State):
        x: Vec
        w: Vec
        g: Vec

    class Renew(Phase):
        class Down(Message):
            x: Vec

        class Up(Message):
            g: Vec

        def send(self, s):
            return self.Down(x=s.x)

        def work(self, me, got, f):
            return me, self.Up(g=f.grad(got.x))

        def merge(self, s, up, cohort):
            return self.Server(x=s.x, w=s.x, g=up.g)

    who = "one"

    class Down(Message):
        z: Vec
        w: Vec

    class Up(Message):
        x: Vec

    def server(self, x0):
        return self.Server(x=x0, w=x0, g=0 * x0)

    def phases(self, now):
        renew = now.number == 0 or now.coin.random() < self.p
        return super().phases(now)[0 if renew else 1 :]

    def send(self, s):
        return self.Down(z=s.x - self.eta * s.g, w=s.w)

    def work(self, me, got, f):
        return me, self.Up(x=f.solve(got.z / self.eta + f.grad(got.w), 1 / self.eta))

    def merge(self, s, up, cohort):
        return s.replace(x=up.x)
