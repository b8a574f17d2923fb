from undrift.core import Count, Fraction, Message, Method, Positive, State, Vec


class PrimalDual(Method, abstract=True):
    """The oracle minimises f_i(y) + <l_i, y - x> + |y - x|^2 / (2 eta);  l_i += (y_i - x) / eta;
    x_i = y_i + eta l_i.

    With probability 1 - p, one coin for all, x <- mean_i x_i; with probability p every client goes
    on from its own x_i.
    """

    paper = "Zhang et al., IEEE Trans. Signal Process. 2021"
    participation = "full"
    equal_steps = True
    exact = True

    eta: Positive
    p: Fraction = 0.0

    class Server(State):
        x: Vec

    class Down(Message):
        x: Vec

    class Up(Message):
        x: Vec

    def conditions(self):
        return ["p = 1 never communicates: give a smaller p"] * (self.p == 1)

    def blocks(self, now):
        return int(now.coin.geometric(1 - self.p))

    def send(self, s):
        return self.Down(x=s.x)

    def work(self, me, got, f):
        x = got.x
        for r in range(f.blocks_before, f.blocks_before + f.blocks):
            me = self.oracle(me, x, f, r)
            me = me.replace(l=me.l + (me.y - x) / self.eta)
            x = me.y + self.eta * me.l
        return me, self.Up(x=x)

    def merge(self, s, up, cohort):
        return self.Server(x=up.x)

    def oracle(self, me, x, f, r):
        """The client after its r-th round of local work, skipped communications included."""
        raise NotImplementedError


class FedPD(PrimalDual):
    """Oracle I: K gradient steps from the client's own y_i on f_i(y) + <l_i, y - x> + |y - x|^2 /
    (2 eta);

    l_i <- l_i + (y_i - x) / eta;  x_i = y_i + eta l_i;  with probability 1 - p: x <- mean_i x_i,
    else each its own.

    lr          eta_1, local step; at most 1 / (L + 1/eta), the smoothness of what the oracle
                minimises
    eta         inverse weight of the proximal term; below (sqrt(5) - 1) / (4 L)
    p           probability of skipping a communication
    from_server start the local steps at x, as FedSpeed's comparison does
    """

    title = "Federated primal-dual, gradient oracle"

    lr: Positive
    from_server: bool = False

    class Client(State):
        y: Vec
        l: Vec  # noqa: E741

    def client(self, x0):
        return self.Client(y=x0, l=0 * x0)

    def oracle(self, me, x, f, r):
        start = x if self.from_server else me.y
        y = f.sgd(start, self.lr, lambda y, grad: grad(y) + me.l + (y - x) / self.eta)
        return me.replace(y=y)


class FedPDVR(PrimalDual):
    """Oracle II, variance-reduced: from g = grad f_i(y_i) each I-th time it is called, else the g
    carried over, K times

    y+ = (eta y + gamma x) / (eta + gamma) - eta gamma / (eta + gamma) (g + l_i);  g <- g + g_i(y+)
    - g_i(y), one batch;
    l_i <- l_i + (y_i - x) / eta;  x_i = y_i + eta l_i;  with probability 1 - p: x <- mean_i x_i,
    else each its own.

    gamma  local step; above 5 eta
    eta    inverse weight of the proximal term; below 1 / (3 (K + sqrt(K I / B)) L) for mini-batches
           of B and p = 0
    p      probability of skipping a communication
    I      calls of the oracle from one full gradient to the next; those that no communication
           follows count too
    """

    title = "Federated primal-dual, variance-reduced oracle"

    gamma: Positive
    I: Count = 1  # noqa: E741

    class Client(State):
        y: Vec
        l: Vec  # noqa: E741
        g: Vec

    class Point(State):
        y: Vec
        g: Vec

    def client(self, x0):
        return self.Client(y=x0, l=0 * x0, g=0 * x0)

    def oracle(self, me, x, f, r):
        eta, gamma = self.eta, self.gamma

        def step(s, grad):
            y = (eta * s.y + gamma * x - eta * gamma * (s.g + me.l)) / (eta + gamma)
            return self.Point(y=y, g=s.g + grad(y) - grad(s.y))

        g = f.grad(me.y) if r % self.I == 0 else me.g
        end = f.descend(self.Point(y=me.y, g=g), step)
        return me.replace(y=end.y, g=end.g)
