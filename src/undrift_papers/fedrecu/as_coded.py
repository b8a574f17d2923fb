"""FedRecu from where the authors' CNN code starts it."""

from undrift.methods import FedRecu


class FedRecuAsCoded(FedRecu):
    """FedRecu with g_i(-1) = g_i(0) for 0: the first gradient stays in the tracker for ever.

    With exact gradients it never leaves x(0); with mini-batches it goes where the mean gradient is the first one.

    lr  alpha
    """

    exact = False

    class Correct(FedRecu.Correct):
        def work(self, me, got, f):
            if f.round > 0:
                return super().work(me, got, f)
            return self.Client(x=got.x, g=f.grad(got.x, step=0)), self.Up(w=got.x)
