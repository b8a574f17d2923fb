from undrift.core import Fraction
from undrift.methods.bases import AnchorGradient
from undrift.methods.daneplus import LocalSolver, norm2


class InexactDANE(LocalSolver, AnchorGradient):
    """DANE whose clients stop at |y - y*| <= gamma |x - y*|, y* minimising F = f_i - <h_i, .> +
    (lam/2) |. - x|^2.

    y* is not known, so the rule is checked through gradients: since |y - y*| <= |grad F(y)| / (mu +
    lam) and
    |grad F(x)| <= (L + lam) |x - y*|, with lr = 1/(L + lam) it is enough that
    |grad F(y)| <= gamma (mu + lam) lr |grad F(x)|.

    lam     lambda, the original's mu; its factor eta on the gradient is 1
    lr      step of the local solver, 1/(L + lam)
    gamma   accuracy of the local solution; 0 is DANE as far as ``steps`` allow
    mu      strong convexity of the f_i
    solver  gd, fgd (fast gradient descent) or exact
    stop    whether the rule ends the local solver before ``steps``
    """

    title = "DANE with inexact local solutions"
    paper = "Reddi et al., 2016"
    exact = True
    affine = False

    gamma: Fraction = 0.5

    def accurate(self, f, x, g):
        bound = (self.gamma * (self.mu + self.lam) * self.lr) ** 2 * norm2(g)
        return lambda s: norm2(s.g) <= bound

    def work(self, me, got, f):
        y = self.minimise(f, x=me.x, h=me.g - got.g, g=got.g)
        return me, self.Up(y=y)
