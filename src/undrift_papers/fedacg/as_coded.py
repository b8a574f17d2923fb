"""FedDC with the control variates of its authors' code."""

from undrift.core import Local, Positive
from undrift.methods import FedDC


class FedDCAsCoded(FedDC):
    """FedDC that divides moves by K times the first step size, also when the step has decayed.

    lr     eta_l, the step of the round
    alpha  the weight of the penalty on the drift
    first  eta_l of the first round
    """

    first: Positive = 0.1

    def work(self, me: FedDC.Client, got: FedDC.Down, f: Local) -> tuple[FedDC.Client, FedDC.Up]:
        new, up = super().work(me, got, f)
        dc = -got.c - up.dy / (f.steps * self.first)
        return self.Client(h=new.h, c=me.c + dc), self.Up(dy=up.dy, dc=dc)
