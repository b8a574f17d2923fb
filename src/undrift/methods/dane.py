from undrift.core import Local, NonNegative, OrTheory
from undrift.methods._shared import AnchorGradient, Averaging
from undrift.theory import Known, Promise, bounds, rules, steps


def weight(method: "DANE", known: Known) -> float:
    known.need_convex()
    return steps.dane_lam(known.delta_A)


class DANE(AnchorGradient):
    r"""DANE: every client minimises its own function, corrected by the global gradient.

    .. math::

        h_i &= \nabla f_i(x) - \nabla f(x) \\
        y_i &= \mathrm{argmin}_y\; f_i(y) - \langle h_i, y \rangle
            + \tfrac{\lambda}{2} \|y - x\|^2 \\
        x &\leftarrow \mathrm{mean}_i\, y_i

    Args:
        lam: lambda, the weight of the proximal term; delta_A is enough for convex problems.

    Example:
        >>> import undrift as ud
        >>> run = ud.run(ud.DANE(lam="theory"), "quadratic", rounds=50)
        >>> run.history.last["gap"] < 1e-6
        True

    References:
        Shamir, Srebro and Zhang, "Communication-Efficient Distributed Optimization using an
        Approximate Newton-type Method", ICML 2014, arXiv:1312.7853.
        Jiang, Rodomanov and Stich, "Federated Optimization with Doubly Regularized Drift
        Correction", ICML 2024, arXiv:2404.08447, Algorithm 1.
    """

    title = "Distributed approximate Newton"
    paper = "Shamir et al., ICML 2014; Jiang et al., ICML 2024, Algorithm 1"
    exact = True
    solves = True
    needs_sgd = "it takes no local gradient steps"
    proximal_weights = ("lam",)
    prescribed = rules(lam=weight)
    promise = Promise(
        theorem="Jiang et al., (B.15)",
        least=prescribed,
        gap=lambda my, known, start, k: bounds.dane(known.mu, my.lam, k, start.distance2),
    )

    lam: OrTheory[NonNegative]

    def work(
        self, me: AnchorGradient.Client, got: AnchorGradient.Down, f: Local
    ) -> tuple[AnchorGradient.Client, Averaging.Up]:
        h = me.g - got.g
        return me, self.Up(y=f.solve(h + self.lam * me.x, self.lam))
