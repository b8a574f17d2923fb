from undrift.core import Message, Method, Positive, State, Vec


class EXTRA(Method):
    """X(t+1) = (W + I)/2 (2 X(t) - X(t-1)) - lr G(t) + lr G(t-1), W averaging where K divides t +
    1, else identity.

    Dual form, with u_i = 2 x_i(t) - x_i(t-1) at a communication:  d_i <- d_i + (u_i - mean u) / (2
    lr),
    and every iteration x_i <- x_i - lr (g_i(x_i) + d_i).  The mean arrives with the next round;
    until then a client keeps q_i = d_i + u_i / (2 lr), lr the step that made u_i also where it
    changes between rounds.

    X(0) is common, X(1) = X(0) - lr G(0). X(K) needs the mean of 2 X(K-1) - X(K-2), so the first
    round has K - 1 steps;
    one where K = 1, as X(0) is a mean already. After a round that ends at X(t) the server's model
    is the mean of
    2 X(t) - X(t-1), which foretells that of X(t+1) but for lr mean (G(t) - G(t-1)): to know X's own
    mean would cost a
    second vector.

    The gain 1/(2 lr) is K/2 times too large for K local steps: stable for K <= 6 only, and at 6 it
    barely contracts.

    lr  alpha, local step
    """

    title = "EXTRA with local updates"
    paper = "Shi et al., SIAM J. Optim. 2015; FedRecu, Remark 4"
    participation = "full"
    equal_steps = True
    exact = True

    lr: Positive

    class Server(State):
        u: Vec

    class Client(State):
        x: Vec
        q: Vec

    class Down(Message):
        u: Vec

    class Up(Message):
        u: Vec

    class Pair(State):
        x: Vec
        before: Vec

    def local_steps(self, now):
        return [max(k - 1, 1) for k in now.steps] if now.first else now.steps

    def server(self, x0):
        return self.Server(u=x0)

    def client(self, x0):
        return self.Client(x=x0, q=x0 / (2 * self.lr))

    def point(self, s):
        return s.u

    def send(self, s):
        return self.Down(u=s.u)

    def work(self, me, got, f):
        d = me.q - f.decay * got.u / (2 * self.lr)
        end = f.descend(
            self.Pair(x=me.x, before=me.x),
            lambda y, grad: self.Pair(x=y.x - self.lr * (grad(y.x) + d), before=y.x),
        )
        u = 2 * end.x - end.before
        return self.Client(x=end.x, q=d + u / (2 * self.lr)), self.Up(u=u)

    def merge(self, s, up, cohort):
        return self.Server(u=up.u)
