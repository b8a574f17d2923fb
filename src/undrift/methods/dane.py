from undrift.core import NonNegative
from undrift.methods.bases import AnchorGradient


class DANE(AnchorGradient):
    """h_i = grad f_i(x) - grad f(x);  y_i = argmin f_i(y) - <h_i, y> + (lam/2) |y - x|^2;  x <-
    mean_i y_i.

    lam  lambda; delta_A is enough for convex problems
    """

    title = "Distributed approximate Newton"
    paper = "Shamir et al., ICML 2014; Jiang et al., ICML 2024, Algorithm 1"
    exact = True
    solves = True

    lam: NonNegative

    def work(self, me, got, f):
        h = me.g - got.g
        return me, self.Up(y=f.solve(h + self.lam * me.x, self.lam))
