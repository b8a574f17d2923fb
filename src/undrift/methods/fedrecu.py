from undrift.core import Message, Method, Phase, Positive, State, Vec


class FedRecu(Method):
    """Two-step recursion in x that removes the gradient tracker; g_i(t) is the gradient at x_i(t),
    tau the local steps.

    (4), t = k tau:             w_i = x_i(t-1) + lr (g_i(t) - g_i(t-1));              x(t+1) = 2
    x(t) - mean_i w_i
    (5), between:               x_i(t+1) = 2 x_i(t) - x_i(t-1) - lr (g_i(t) - g_i(t-1))
    (3), t = (k+1) tau - 1:     v_i = the same;                                      x(t+1) = mean_i
    v_i

    A round starts at the common point x(k tau). tau = 1 is gradient descent, in one exchange. The
    first round
    starts from x(0) with x_i(-1) = x(0) and g_i(-1) = 0: any history with mean_i (x_i(-1) - lr
    g_i(-1)) = x(0)
    gives the same points, and this one costs no exchange. x(t) - x_i(t-1) is as long as the step
    that made it: where
    lr changes between two rounds, (4) takes x(t) + (lr / old lr) (x_i(t-1) - x(t)) for x_i(t-1).

    lr  alpha
    """

    title = "Recursive federated learning"
    paper = "Leveraging Recursive Methods for Efficient Federated Learning, Algorithm 1"
    participation = "full"
    equal_steps = True
    exact = True

    lr: Positive

    class Server(State):
        x: Vec

    class Client(State):
        x: Vec
        g: Vec

    class Correct(Phase):
        """(4)"""

        class Down(Message):
            x: Vec

        class Up(Message):
            w: Vec

        def send(self, s):
            return self.Down(x=s.x)

        def work(self, me, got, f):
            g = f.grad(got.x, step=0)
            before = me.x + (1 - f.decay) * (got.x - me.x)
            return self.Client(x=got.x, g=g), self.Up(w=before + self.lr * (g - me.g))

        def merge(self, s, up, cohort):
            return self.Server(x=2 * s.x - up.w)

    class Down(Message):
        x: Vec

    class Up(Message):
        v: Vec

    class Recursion(State):
        x: Vec
        before: Vec
        g: Vec

    def client(self, x0):
        return self.Client(x=x0, g=0 * x0)

    def phases(self, now):
        return super().phases(now)[: 1 if now.steps[0] == 1 else 2]

    def send(self, s):
        return self.Down(x=s.x)

    def work(self, me, got, f):
        def step(y, grad):
            g = grad(y.x)
            return self.Recursion(x=2 * y.x - y.before - self.lr * (g - y.g), before=y.x, g=g)

        end = f.descend(self.Recursion(x=got.x, before=me.x, g=me.g), step, start=1)
        return self.Client(x=end.before, g=end.g), self.Up(v=end.x)

    def merge(self, s, up, cohort):
        return self.Server(x=up.v)
