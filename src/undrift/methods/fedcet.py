from undrift.core import Message, Method, Positive, State, Vec


class FedCET(Method):
    """Exact with one vector each way, by averaging only partially (weight c lr).

    Dual form (7), every iteration:  z_i = x_i - lr (g_i(x_i) + d_i);
    at a communication:              d_i <- d_i + c (z_i - z),  x_i = z_i - c lr (z_i - z),  z =
    mean_i z_i;
    otherwise:                       x_i = z_i.
    The mean z, which is also mean_i x_i, arrives with the next round. The first round is the
    paper's start, two steps
    whatever K is: x(-2) is given, x_i(-1) = x(-2) - lr g_i(x(-2)), and x_i(0) comes from the first
    communication.

    lr  alpha, from the paper's learning-rate search
    c   weight of the partial average, at most mu / (2 mu lr + 8)
    """

    title = "Communication-efficient tracking"
    paper = "Liu and Wang, Communication Efficient Federated Learning with Linear Convergence on Heterogeneous Data"
    participation = "full"
    equal_steps = True
    exact = True

    lr: Positive
    c: Positive

    class Server(State):
        z: Vec

    class Client(State):
        z: Vec
        d: Vec

    class Down(Message):
        z: Vec

    class Up(Message):
        z: Vec

    def local_steps(self, now):
        return [2] * len(now.steps) if now.first else now.steps

    def server(self, x0):
        return self.Server(z=x0)

    def client(self, x0):
        return self.Client(z=x0, d=0 * x0)

    def point(self, s):
        return s.z

    def send(self, s):
        return self.Down(z=s.z)

    def work(self, me, got, f):
        d = me.d + self.c * (me.z - got.z)
        x = me.z - self.c * self.lr * (me.z - got.z)
        z = f.sgd(x, self.lr, lambda x, grad: grad(x) + d)
        return self.Client(z=z, d=d), self.Up(z=z)

    def merge(self, s, up, cohort):
        return self.Server(z=up.z)
