from typing import Literal

from undrift.core import Cohort, Grad, Local, Message, Method, State, Vec, length
from undrift.core.params import Fraction, NonNegative, OrAuto, Positive


class FedSpeed(Method):
    r"""FedSpeed: a prox-corrected local step along a perturbed gradient.

    Clients take K steps from y = x, both gradients on one mini-batch:

    .. math::

        g_1 &= g_i(y), \quad g_2 = g_i(y + \rho g_1) \\
        y &\leftarrow y - \eta_l ((1 - \alpha) g_1 + \alpha g_2 - \hat{g}_i + (y - x) / \lambda)

    then renew their correction, and the server averages what they upload:

    .. math::

        \hat{g}_i &\leftarrow \hat{g}_i - (y_i - x) / \lambda \\
        x &\leftarrow \mathrm{mean}_S (y_i - \lambda \hat{g}_i)

    With server_dual = all, as in the authors' code, the mean of the corrections is over all
    clients: :math:`x \leftarrow \mathrm{mean}_S\, y_i - \lambda\, \mathrm{mean}_N\, \hat{g}_j`.

    Args:
        lr: eta_l, the local step size.
        lam: lambda, the inverse weight of the proximal term.
        rho: rho, the size of the ascent step.
        alpha: alpha, the weight of the perturbed gradient.
        normalise: Divide rho by the norm of g_1, as in the experiments; the theory has it constant.
        prox: Keep the proximal term; this switch and the next two are those of Table 7.
        correct: Keep the prox-correction.
        perturb: Keep the perturbed gradient.
        server_dual: Whose corrections the server subtracts: those of the active clients, which
            overshoots where few take part, or of all.

    Example:
        >>> import undrift as ud
        >>> run = ud.run(ud.FedSpeed(lr=0.02, lam=1.0), "quadratic", rounds=50, steps=10)
        >>> 1e-4 < run.history.last["gap"] < 1e-2
        True

    References:
        Sun, Shen, Huang, Ding and Tao, "FedSpeed: Larger Local Interval, Less Communication Round,
        and Higher Generalization Accuracy", ICLR 2023, arXiv:2302.10429, Algorithm 1.
    """

    title = "Prox-correction and perturbed gradients"
    steering = ("alpha",)
    paper = "Sun et al., ICLR 2023, Algorithm 1"
    affine = False
    needs_mean = "the clients' corrections cancel in the mean of their uploads alone"
    needs_sgd = ""

    lr: OrAuto[Positive]
    lam: Positive = 10.0
    rho: NonNegative = 0.1
    alpha: Fraction = 1.0
    normalise: bool = True
    prox: bool = True
    correct: bool = True
    perturb: bool = True
    server_dual: Literal["active", "all"] = "active"

    class Server(State):
        x: Vec
        g: Vec

    class Client(State):
        g: Vec

    class Up(Message):
        y: Vec

    def conditions(self) -> dict[str, str]:
        if self.correct and not self.prox:
            return {"prox": "the prox-correction needs the proximal term: set prox = true"}
        return {}

    def server(self, x0: Vec) -> Server:
        return self.Server(x=x0, g=0 * x0)

    def client(self, x0: Vec) -> Client:
        return self.Client(g=0 * x0)

    def work(self, me: Client, got: Method.Down, f: Local) -> tuple[Client, Up]:
        def direction(y: Vec, grad: Grad) -> Vec:
            g1 = grad(y)
            if not self.perturb:
                return g1 - me.g
            size = length(g1) + 1e-7 if self.normalise else 1.0
            g2 = grad(y + self.rho / size * g1)
            g = g2 if self.alpha == 1 else (1 - self.alpha) * g1 + self.alpha * g2
            return g - me.g

        y = f.sgd(got.x, self.lr, direction, prox=1 / self.lam if self.prox else 0.0)
        if not self.correct:
            return me, self.Up(y=y)
        g = me.g - (y - got.x) / self.lam
        return self.Client(g=g), self.Up(y=y - self.lam * g if self.server_dual == "active" else y)

    def merge(self, s: Server, up: Up, cohort: Cohort) -> Server:
        if self.server_dual == "active" or not self.correct:
            return self.Server(x=up.y, g=0 * s.g)  # g is for server_dual = "all" alone
        g = s.g - cohort.fraction * (up.y - s.x) / self.lam
        return self.Server(x=up.y - self.lam * g, g=g)
