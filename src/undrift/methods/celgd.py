from __future__ import annotations

from undrift.core import (
    Cohort,
    Fraction,
    Grad,
    Local,
    Message,
    Method,
    OrAuto,
    Phase,
    Positive,
    State,
    Vec,
)


class CELGD(Method):
    r"""CE-LGD: one client walks along a variance-reduced estimate of the gradient.

    The cohort renews the server's estimate v from gradients at x and at the previous point x':

    .. math::

        v \leftarrow \mathrm{mean}_S \nabla f_i(x)
            + (1 - \beta) (v - \mathrm{mean}_S \nabla f_i(x'))

    with the mean alone in the first round. Then one client m, drawn from all, takes K steps from
    w = x and u = v, each on one mini-batch, and its last point becomes x:

    .. math::

        w^+ &= w - \eta u \\
        u^+ &= u + g_m(w^+) - g_m(w)

    K = 1 is a step along v.

    Args:
        lr: eta, the step size of the walk; about 1/L.
        beta: beta, the weight of the fresh gradient in v; 1 is exact on full cohorts.

    Example:
        >>> import undrift as ud
        >>> run = ud.run(ud.CELGD(lr=0.1), "quadratic", rounds=50, steps=5)
        >>> run.history.last["gap"] < 1e-6
        True

    References:
        Patel, Wang, Woodworth, Bullins and Srebro, "Towards Optimal Communication Complexity in
        Distributed Non-Convex Optimization", NeurIPS 2022.
    """

    title = "Communication-efficient local gradient descent"
    steering = ("beta",)
    paper = "Patel et al., NeurIPS 2022"
    exact = True
    needs_mean = "one client's walk becomes the model, and no rule can judge one upload"
    needs_sgd = "its walk is a recursion of gradients"
    provisional = (
        "the order of the lines, the output and how many clients walk are not confirmed: "
        "the last point, and one"
    )

    lr: OrAuto[Positive]
    beta: Fraction = 1.0

    class Server(State):
        x: Vec
        before: Vec
        v: Vec

    class Estimate(Phase):
        class Down(Message):
            x: Vec
            before: Vec

        class Up(Message):
            g: Vec

        def work(self, me: State, got: Down, f: Local) -> tuple[State, Up]:
            g = f.grad(got.x)
            if f.round and self.beta < 1:
                g = g - (1 - self.beta) * f.grad(got.before)
            return me, self.Up(g=g)

        def merge(self, s: CELGD.Server, up: Up, cohort: Cohort) -> CELGD.Server:
            return s.replace(v=up.g + (1 - self.beta) * s.v)

    class Walk(State):
        w: Vec
        u: Vec

    who = "one"

    class Down(Message):
        x: Vec
        v: Vec

    class Up(Message):
        w: Vec

    def server(self, x0: Vec) -> Server:
        return self.Server(x=x0, before=x0, v=0 * x0)

    def work(self, me: State, got: Down, f: Local) -> tuple[State, Up]:
        def step(s: CELGD.Walk, grad: Grad) -> CELGD.Walk:
            w = s.w - self.lr * s.u
            return self.Walk(w=w, u=s.u + grad(w) - grad(s.w))

        return me, self.Up(w=f.descend(self.Walk(w=got.x, u=got.v), step).w)

    def merge(self, s: Server, up: Up, cohort: Cohort) -> Server:
        return self.Server(x=up.w, before=s.x, v=s.v)
