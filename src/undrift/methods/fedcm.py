from undrift.core import Cohort, Local, Message, Method, OrAuto, Positive, Probability, State, Vec


class FedCM(Method):
    r"""FedCM: clients mix the last global direction into every local step.

    Clients take K steps from y = x; then the server renews the direction d and moves:

    .. math::

        y &\leftarrow y - \eta_l (\alpha g_i(y) + (1 - \alpha) d) \\
        d &\leftarrow \mathrm{mean}_S (x - y_i) / (\eta_l K) \\
        x &\leftarrow x + \eta_g\, \mathrm{mean}_S (y_i - x)

    Args:
        lr: eta_l, the local step size.
        alpha: alpha, the weight of the client's own gradient; 1 is FedAvg.
        server_lr: eta_g, the server's step size.

    Example:
        >>> import undrift as ud
        >>> run = ud.run(ud.FedCM(lr=0.02, alpha=0.5), "quadratic", rounds=50, steps=5)
        >>> 1e-4 < run.history.last["gap"] < 1e-2  # drift leaves a gap
        True

    References:
        Xu, Wang, Wang and Yao, "FedCM: Federated Learning with Client-level Momentum", 2021,
        arXiv:2106.10874.
    """

    title = "Client-level momentum"
    paper = "Xu et al., 2021"
    weighted = True
    robust = True
    needs_sgd = "the server takes (x - y) / (K lr) for the mean of the gradients, its d"

    lr: OrAuto[Positive]
    server_lr: Positive = 1.0
    alpha: Probability = 0.1

    class Server(State):
        x: Vec
        d: Vec

    class Down(Message):
        x: Vec
        d: Vec

    class Up(Message):
        dy: Vec

    def server(self, x0: Vec) -> Server:
        return self.Server(x=x0, d=0 * x0)

    def work(self, me: State, got: Down, f: Local) -> tuple[State, Up]:
        y = f.sgd(got.x, self.lr, lambda y, grad: self.alpha * grad(y) + (1 - self.alpha) * got.d)
        return me, self.Up(dy=y - got.x)

    def merge(self, s: Server, up: Up, cohort: Cohort) -> Server:
        return self.Server(x=s.x + self.server_lr * up.dy, d=-up.dy / (self.lr * cohort.steps))
