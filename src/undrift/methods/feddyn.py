from undrift.core import Message, Method, Positive, State, Vec


class FedDyn(Method):
    """Clients: K steps from x on f_i(y) - <d_i, y> + (alpha/2) |y - x|^2;  d_i <- d_i - alpha (y_i
    - x).

    Server: h <- h - alpha (|S|/N) mean_S (y_i - x), the mean of all d_i;  x <- mean_S y_i - h /
    alpha.

    lr     eta_l, local step
    alpha  weight of the dynamic regulariser
    """

    title = "Dynamic regularisation"
    paper = "Acar et al., ICLR 2021"
    exact = True

    lr: Positive
    alpha: Positive = 0.1

    class Server(State):
        x: Vec
        h: Vec

    class Client(State):
        d: Vec

    class Down(Message):
        x: Vec

    class Up(Message):
        dy: Vec

    def server(self, x0):
        return self.Server(x=x0, h=0 * x0)

    def client(self, x0):
        return self.Client(d=0 * x0)

    def send(self, s):
        return self.Down(x=s.x)

    def work(self, me, got, f):
        y = f.sgd(got.x, self.lr, lambda y, grad: grad(y) - me.d, prox=self.alpha)
        return self.Client(d=me.d - self.alpha * (y - got.x)), self.Up(dy=y - got.x)

    def merge(self, s, up, cohort):
        h = s.h - self.alpha * cohort.fraction * up.dy
        return self.Server(x=s.x + up.dy - h / self.alpha, h=h)
