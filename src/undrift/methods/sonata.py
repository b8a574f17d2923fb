from undrift.core import NonNegative, Probability
from undrift.methods.bases import AnchorGradient


class SONATA(AnchorGradient):
    """y_i = argmin f_i(y) + <grad f(x) - grad f_i(x), y - x> + (beta/2) |y - x|^2;  x <- x + alpha
    mean_i (y_i - x).

    The star is SONATA's network here; alpha = 1 is DANE with lam = beta.

    beta   weight of the proximal term; about delta
    alpha  step towards the mean
    """

    title = "SONATA on a star"
    paper = "Sun, Scutari and Daneshmand, SIAM J. Optim. 2022"
    exact = True
    solves = True
    provisional = "reduced from the mesh algorithm to a star; the constants of its inexact version are not confirmed"

    beta: NonNegative
    alpha: Probability = 1.0

    def work(self, me, got, f):
        return me, self.Up(y=f.solve(me.g - got.g + self.beta * me.x, self.beta))

    def merge(self, s, up, cohort):
        return s.replace(x=s.x + self.alpha * (up.y - s.x))
