from undrift.core import Cohort, Local, Message, Method, OrTheory, Positive, State, Vec
from undrift.theory import Promise, bounds, rules, steps


class GD(Method):
    r"""Gradient descent on the mean of the clients' functions.

    .. math::

        x \leftarrow x - \eta\, \mathrm{mean}_i\, g_i(x)

    Args:
        lr: eta, the step size; 1/L of f is enough.

    Example:
        >>> import undrift as ud
        >>> run = ud.run(ud.GD(lr="theory"), "quadratic", rounds=100)
        >>> run.history.last["gap"] < 1e-6
        True

    References:
        Cauchy, "Méthode générale pour la résolution des systèmes d'équations simultanées", 1847.
    """

    title = "Gradient descent"
    paper = "Cauchy 1847"
    participation = "full"
    exact = True
    robust = True
    needs_sgd = "it takes no local gradient steps"
    prescribed = rules(lr=lambda method, known: steps.gd(known.L_mean))
    promise = Promise(
        theorem="descent lemma",
        most=prescribed,
        gap=lambda my, known, start, k: bounds.gd(known.strong_mean, my.lr, k, start.gap),
    )

    lr: OrTheory[Positive]

    class Up(Message):
        g: Vec

    def work(self, me: State, got: Method.Down, f: Local) -> tuple[State, Up]:
        return me, self.Up(g=f.grad(got.x, step=0))

    def merge(self, s: Method.Server, up: Up, cohort: Cohort) -> Method.Server:
        return self.Server(x=s.x - self.lr * up.g)
