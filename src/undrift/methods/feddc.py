from undrift.core import Message, Method, NonNegative, Positive, State, Vec


class FedDC(Method):
    """Clients: K steps from x along g_i(y) + alpha (y - (x - h_i)) + c - c_i;  D_i = y_i - x;

    h_i <- h_i + D_i;  c_i <- c_i - c - D_i / (K lr).
    Server: c <- c + (|S|/N) mean_S of the changes of c_i;  x <- mean_S y_i + mean_N h_j.
    The recursion of c_i is that of the authors' code; the paper's, without c_i - c, converges too
    but far more slowly.
    The server keeps x, c and h = mean_N h_j, and no two vectors would do: h sums the clients'
    moves, x sums h, and c
    forgets them at the rate |S|/N, so that none of the three follows from the others.

    lr     eta_l, local step
    alpha  weight of the penalty on the drift h_i
    """

    title = "Local drift decoupling and correction"
    paper = "Gao et al., CVPR 2022"
    exact = True

    lr: Positive
    alpha: NonNegative = 0.01

    class Server(State):
        x: Vec
        c: Vec
        h: Vec

    class Client(State):
        h: Vec
        c: Vec

    class Down(Message):
        x: Vec
        c: Vec

    class Up(Message):
        dy: Vec
        dc: Vec

    def server(self, x0):
        return self.Server(x=x0, c=0 * x0, h=0 * x0)

    def client(self, x0):
        return self.Client(h=0 * x0, c=0 * x0)

    def send(self, s):
        return self.Down(x=s.x, c=s.c)

    def work(self, me, got, f):
        def direction(y, grad):
            return grad(y) + self.alpha * (y - got.x + me.h) + got.c - me.c

        dy = f.sgd(got.x, self.lr, direction) - got.x
        dc = -got.c - dy / (f.steps * self.lr)
        return self.Client(h=me.h + dy, c=me.c + dc), self.Up(dy=dy, dc=dc)

    def merge(self, s, up, cohort):
        h = s.h + cohort.fraction * up.dy
        return self.Server(x=s.x + up.dy + h, c=s.c + cohort.fraction * up.dc, h=h)
