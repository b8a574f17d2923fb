from undrift.core import Fraction, Positive, State, Vec
from undrift.methods.fedavg import FedAvg


class FedOpt(FedAvg, abstract=True):
    """FedAvg whose server applies an adaptive step to D = mean_S (y_i - x):

    m <- beta1 m + (1 - beta1) D;  v as each method says, from v = tau^2;  x <- x + server_lr m /
    (sqrt(v) + tau).
    No bias correction.
    """

    paper = "Reddi et al., ICLR 2021"
    affine = False
    coordinatewise = True

    server_lr: Positive = 0.1
    beta1: Fraction = 0.9
    tau: Positive = 1e-3

    class Server(State):
        x: Vec
        m: Vec
        v: Vec

    def server(self, x0):
        return self.Server(x=x0, m=0 * x0, v=0 * x0 + self.tau**2)

    def merge(self, s, up, cohort):
        m = self.beta1 * s.m + (1 - self.beta1) * up.dy
        v = self.second_moment(s.v, up.dy * up.dy)
        return self.Server(x=s.x + self.server_lr * m / (v.sqrt() + self.tau), m=m, v=v)

    def second_moment(self, v, d2):
        raise NotImplementedError


class FedAdam(FedOpt):
    """Server Adam:  v <- beta2 v + (1 - beta2) D^2, coordinate by coordinate.

    lr         eta_l, local step
    server_lr  eta_g, server step
    beta1      decay of the first moment
    beta2      decay of the second moment
    tau        adaptivity: added to the root, and v starts at its square
    """

    title = "Adam on the server"
    beta2: Fraction = 0.99

    def second_moment(self, v, d2):
        return self.beta2 * v + (1 - self.beta2) * d2


class FedYogi(FedOpt):
    """Server Yogi:  v <- v - (1 - beta2) D^2 sign(v - D^2), coordinate by coordinate.

    lr         eta_l, local step
    server_lr  eta_g, server step
    beta1      decay of the first moment
    beta2      decay of the second moment
    tau        adaptivity: added to the root, and v starts at its square
    """

    title = "Yogi on the server"
    beta2: Fraction = 0.99

    def second_moment(self, v, d2):
        return v - (1 - self.beta2) * d2 * (v - d2).sign()


class FedAdagrad(FedOpt):
    """Server Adagrad:  v <- v + D^2, coordinate by coordinate.

    lr         eta_l, local step
    server_lr  eta_g, server step
    beta1      decay of the first moment
    tau        adaptivity: added to the root, and v starts at its square
    """

    title = "Adagrad on the server"
    beta1: Fraction = 0.0

    def second_moment(self, v, d2):
        return v + d2
