from undrift.core import Fraction, State, Vec
from undrift.methods.fedavg import FedAvg


class FedAvgM(FedAvg):
    """FedAvg with server momentum:  m <- beta m + mean_S (y_i - x);  x <- x + server_lr m.

    lr         eta_l, local step
    beta       momentum; 0 is FedAvg
    server_lr  eta_g, server step
    """

    title = "FedAvg with server momentum"
    paper = "Hsu et al., 2019"

    beta: Fraction

    class Server(State):
        x: Vec
        m: Vec

    def server(self, x0):
        return self.Server(x=x0, m=0 * x0)

    def merge(self, s, up, cohort):
        m = self.beta * s.m + up.dy
        return self.Server(x=s.x + self.server_lr * m, m=m)
