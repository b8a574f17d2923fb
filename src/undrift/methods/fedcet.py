from collections.abc import Sequence

from undrift.core import Cohort, Local, Message, Method, OrTheory, Positive, Round, State, Vec
from undrift.theory import fedcet, rules


class FedCET(Method):
    r"""FedCET: exact with one vector each way, by averaging only partially.

    In dual form (7). Every iteration is :math:`z_i = x_i - \alpha (g_i(x_i) + d_i)`, followed by
    x_i = z_i or, at a communication with :math:`z = \mathrm{mean}_i\, z_i`, by

    .. math::

        d_i &\leftarrow d_i + c (z_i - z) \\
        x_i &= z_i - c \alpha (z_i - z)

    The mean z, which is also that of the x_i, arrives with the next round. The first round is the
    paper's start, two steps whatever K is: x(-2) is given, x_i(-1) = x(-2) - alpha g_i(x(-2)), and
    x_i(0) comes from the first communication.

    Args:
        lr: alpha, the local step size, from the paper's learning-rate search.
        c: c, where c alpha is the weight of the mean; at most mu / (2 mu alpha + 8).

    Example:
        >>> import undrift as ud
        >>> run = ud.run(ud.FedCET(lr=0.05, c=4.0), "quadratic", rounds=100, steps=5)
        >>> run.history.last["gap"] < 1e-6
        True

    References:
        Liu and Wang, "Communication Efficient Federated Learning with Linear Convergence on
        Heterogeneous Data", Algorithm 1.
    """

    title = "Communication-efficient tracking"
    paper = (
        "Liu and Wang, Communication Efficient Federated Learning with Linear Convergence on "
        "Heterogeneous Data"
    )
    participation = "full"
    equal_steps = True
    exact = True
    needs_mean = "the clients' d_i must sum to zero, which they do for the mean z alone"
    needs_sgd = "x_i = z_i - c lr (z_i - z) continues a step of SGD"
    prescribed = rules(
        lr=lambda method, known: fedcet.search(known.strong, known.L, known.steps),
        c=lambda method, known: fedcet.weight(known.strong, method.lr),
    )

    lr: OrTheory[Positive]
    c: OrTheory[Positive]

    class Server(State):
        z: Vec

    class Client(State):
        z: Vec
        d: Vec

    class Down(Message):
        z: Vec

    class Up(Message):
        z: Vec

    def local_steps(self, now: Round) -> Sequence[int]:
        return [2] * len(now.steps) if now.first else now.steps

    def server(self, x0: Vec) -> Server:
        return self.Server(z=x0)

    def client(self, x0: Vec) -> Client:
        return self.Client(z=x0, d=0 * x0)

    def point(self, s: Server) -> Vec:
        return s.z

    def work(self, me: Client, got: Down, f: Local) -> tuple[Client, Up]:
        d = me.d + self.c * (me.z - got.z)
        x = me.z - self.c * self.lr * (me.z - got.z)
        z = f.sgd(x, self.lr, lambda x, grad: grad(x) + d)
        return self.Client(z=z, d=d), self.Up(z=z)

    def merge(self, s: Server, up: Up, cohort: Cohort) -> Server:
        return self.Server(z=up.z)
