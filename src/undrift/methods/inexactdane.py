from collections.abc import Callable

from undrift.core import Fraction, Local, Vec
from undrift.methods.daneplus import InexactSolution, Solver, norm2


class InexactDANE(InexactSolution):
    r"""InexactDANE: DANE whose clients stop once they are close enough to their minimiser.

    .. math::

        h_i &= \nabla f_i(x) - \nabla f(x) \\
        F_i(y) &= f_i(y) - \langle h_i, y \rangle + \tfrac{\lambda}{2} \|y - x\|^2 \\
        \|y_i - y_i^*\| &\le \gamma \|x - y_i^*\|, \quad y_i^* = \mathrm{argmin}_y\; F_i(y) \\
        x &\leftarrow \mathrm{mean}_i\, y_i

    The minimiser is not known, so the rule is checked through gradients: since
    |y - y*| <= |grad F(y)| / (mu + lam) and |grad F(x)| <= (L + lam) |x - y*|, with
    lr = 1/(L + lam) it is enough that |grad F(y)| <= gamma (mu + lam) lr |grad F(x)|.

    Args:
        lam: lambda, the weight of the proximal term, mu in the original; its factor eta on the
            gradient is 1.
        lr: The step size of the local solver, 1/(L + lam).
        gamma: gamma, the accuracy of the local solution; 0 is DANE as far as ``steps`` allow.
        mu: Strong convexity of the f_i.
        solver: gd, fgd (fast gradient descent) or exact.
        stop: Whether the rule ends the local solver before ``steps``.

    Example:
        >>> import undrift as ud
        >>> run = ud.run(ud.InexactDANE(lam=5.0, lr=0.05, mu=1.0), "quadratic", rounds=50, steps=20)
        >>> run.history.last["gap"] < 1e-6
        True

    References:
        Reddi, Konečný, Richtárik, Póczos and Smola, "AIDE: Fast and Communication Efficient
        Distributed Optimization", 2016, arXiv:1608.06879.
    """

    title = "DANE with inexact local solutions"
    paper = "Reddi et al., 2016"

    gamma: Fraction = 0.5

    def accurate(self, f: Local, x: Vec, g: Vec) -> Callable[[Solver], Vec]:
        bound = (self.gamma * (self.mu + self.lam) * self.lr) ** 2 * norm2(g)
        return lambda s: norm2(s.g) <= bound
