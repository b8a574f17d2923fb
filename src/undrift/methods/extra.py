from collections.abc import Sequence

from undrift.core import Cohort, Local, Message, Method, OrTheory, Positive, Round, State, Vec
from undrift.theory import rules, steps


class EXTRA(Method):
    r"""EXTRA with K local iterations between communications.

    In the iterates of all clients, W averaging where K divides t + 1 and the identity elsewhere:

    .. math::

        X(t+1) = \tfrac{1}{2} (W + I) (2 X(t) - X(t-1)) - \alpha G(t) + \alpha G(t-1)

    Here in dual form. At a communication :math:`u_i = 2 x_i(t) - x_i(t-1)`, and

    .. math::

        d_i &\leftarrow d_i + (u_i - \mathrm{mean}_j\, u_j) / (2 \alpha) \\
        x_i &\leftarrow x_i - \alpha (g_i(x_i) + d_i) \text{ in every iteration}

    The mean arrives with the next round; until then a client keeps q_i = d_i + u_i / (2 alpha),
    alpha being the step that made u_i also where it changes between rounds.

    X(0) is common and X(1) = X(0) - alpha G(0). X(K) needs the mean of 2 X(K-1) - X(K-2), so the
    first round has K - 1 steps; one where K = 1, as X(0) is a mean already. After a round that ends
    at X(t) the server's model is the mean of 2 X(t) - X(t-1), which is that of X(t+1) but for
    alpha mean (G(t) - G(t-1)): the mean of X itself would cost a second vector.

    The gain 1/(2 alpha) is K/2 times too large for K local steps: the method is stable for K <= 6
    only, and at 6 it barely contracts.

    Args:
        lr: alpha, the local step size. Use at most 6 local steps: with more, no size is safe, and
            "theory" is refused.

    Example:
        >>> import undrift as ud
        >>> run = ud.run(ud.EXTRA(lr="theory"), "quadratic", rounds=100, steps=2)
        >>> run.history.last["gap"] < 1e-6
        True

    References:
        Shi, Ling, Wu and Yin, "EXTRA: An Exact First-Order Algorithm for Decentralized Consensus
        Optimization", SIAM Journal on Optimization 2015, arXiv:1404.6264.
        "Leveraging Recursive Methods for Efficient Federated Learning" (FedRecu), Remark 4.
    """

    title = "EXTRA with local updates"
    paper = "Shi et al., SIAM J. Optim. 2015; FedRecu, Remark 4"
    participation = "full"
    equal_steps = True
    exact = True
    needs_mean = "the clients' d_i must sum to zero, which they do for the mean u alone"
    needs_sgd = "its recursion is one of gradient steps of length lr"
    prescribed = rules(lr=lambda method, known: steps.extra(known.L, known.steps))

    lr: OrTheory[Positive]

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

    def local_steps(self, now: Round) -> Sequence[int]:
        return [max(k - 1, 1) for k in now.steps] if now.first else now.steps

    def server(self, x0: Vec) -> Server:
        return self.Server(u=x0)

    def client(self, x0: Vec) -> Client:
        return self.Client(x=x0, q=x0 / (2 * self.lr))

    def point(self, s: Server) -> Vec:
        return s.u

    def work(self, me: Client, got: Down, f: Local) -> tuple[Client, Up]:
        d = me.q - f.decay * got.u / (2 * self.lr)
        end = f.descend(
            self.Pair(x=me.x, before=me.x),
            lambda y, grad: self.Pair(x=y.x - self.lr * (grad(y.x) + d), before=y.x),
        )
        u = 2 * end.x - end.before
        return self.Client(x=end.x, q=d + u / (2 * self.lr)), self.Up(u=u)

    def merge(self, s: Server, up: Up, cohort: Cohort) -> Server:
        return self.Server(u=up.u)
