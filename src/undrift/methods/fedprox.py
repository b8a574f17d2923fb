from undrift.core import NonNegative
from undrift.methods.fedavg import FedAvg


class FedProx(FedAvg):
    """FedAvg on the local objective f_i(y) + (mu/2) |y - x|^2. The minimiser is not a fixed point.

    lr         eta_l, local step
    mu         weight of the proximal term; 0 is FedAvg
    server_lr  eta_g, server step
    """

    title = "FedAvg with a proximal term"
    paper = "Li et al., MLSys 2020"

    mu: NonNegative

    def work(self, me, got, f):
        y = f.sgd(got.x, self.lr, prox=self.mu)
        return me, self.Up(dy=y - got.x)
