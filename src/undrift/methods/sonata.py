from undrift.core import Cohort, Local, Method, NonNegative, OrAuto, Probability
from undrift.methods._shared import AnchorGradient, Averaging


class SONATA(AnchorGradient):
    r"""SONATA on a star: a step towards the mean of the clients' surrogate minimisers.

    .. math::

        y_i &= \mathrm{argmin}_y\; f_i(y) + \langle \nabla f(x) - \nabla f_i(x), y - x \rangle
            + \tfrac{\beta}{2} \|y - x\|^2 \\
        x &\leftarrow x + \alpha\, \mathrm{mean}_i (y_i - x)

    With alpha = 1 it is DANE with lam = beta.

    Args:
        beta: beta, the weight of the proximal term; about delta.
        alpha: alpha, the step towards the mean.

    Example:
        >>> import undrift as ud
        >>> run = ud.run(ud.SONATA(beta=5.0), "quadratic", rounds=50)
        >>> run.history.last["gap"] < 1e-6
        True

    References:
        Sun, Scutari and Daneshmand, "Distributed Optimization Based on Gradient Tracking Revisited:
        Enhancing Convergence Rate via Surrogation", SIAM Journal on Optimization 2022,
        arXiv:1905.02637.
    """

    title = "SONATA on a star"
    paper = "Sun, Scutari and Daneshmand, SIAM J. Optim. 2022"
    exact = True
    solves = True
    needs_sgd = "it takes no local gradient steps"
    proximal_weights = ("beta",)
    provisional = (
        "reduced from the mesh algorithm to a star; the constants of its inexact version are not "
        "confirmed"
    )

    beta: OrAuto[NonNegative]
    alpha: Probability = 1.0

    def work(
        self, me: AnchorGradient.Client, got: AnchorGradient.Down, f: Local
    ) -> tuple[AnchorGradient.Client, Averaging.Up]:
        return me, self.Up(y=f.solve(me.g - got.g + self.beta * me.x, self.beta))

    def merge(self, s: Method.Server, up: Averaging.Up, cohort: Cohort) -> Method.Server:
        return s.replace(x=s.x + self.alpha * (up.y - s.x))
