from undrift.core import Message, Method, Positive, Probability, State, Vec


class ScaffoldM(Method):
    """SCAFFOLD with momentum:  y <- y - lr (beta (g_i(y) - c_i + c) + (1 - beta) m), K times from
    x.

    c_i <- the mean of its K local gradients;  m <- mean_S (x - y_i) / (lr K);  x <- x - gamma m;
    c <- c + (|S|/N) mean_S of the changes of c_i.  The server sends x and u = beta c + (1 - beta)
    m,
    from which a client finds the mean of its gradients: c_i + ((x - y_i) / (lr K) - u) / beta.

    lr     eta_l, local step
    gamma  server step; K lr is plain averaging
    beta   weight of the corrected gradient; 1 (with gamma = K lr) is SCAFFOLD, option II
    """

    title = "SCAFFOLD with momentum"
    paper = "Cheng et al., ICLR 2024"
    exact = True
    provisional = "the recursion is standard, the theorems' constants could not be confirmed"

    lr: Positive
    gamma: Positive
    beta: Probability = 0.5

    class Server(State):
        x: Vec
        c: Vec
        m: Vec

    class Client(State):
        c: Vec

    class Down(Message):
        x: Vec
        u: Vec

    class Up(Message):
        m: Vec
        dc: Vec

    def server(self, x0):
        return self.Server(x=x0, c=0 * x0, m=0 * x0)

    def client(self, x0):
        return self.Client(c=0 * x0)

    def send(self, s):
        return self.Down(x=s.x, u=self.beta * s.c + (1 - self.beta) * s.m)

    def work(self, me, got, f):
        y = f.sgd(got.x, self.lr, lambda y, grad: self.beta * (grad(y) - me.c) + got.u)
        m = (got.x - y) / (f.steps * self.lr)
        dc = (m - got.u) / self.beta
        return self.Client(c=me.c + dc), self.Up(m=m, dc=dc)

    def merge(self, s, up, cohort):
        return self.Server(x=s.x - self.gamma * up.m, c=s.c + cohort.fraction * up.dc, m=up.m)
