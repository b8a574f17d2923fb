"""FedRecu from where the authors' CNN code starts it."""

from undrift import FedRecu, Local, Phase


class FedRecuAsCoded(FedRecu):
    """FedRecu with g_i(-1) = g_i(0) for 0: the first gradient stays in the tracker for ever.

    With exact gradients it never leaves x(0); with mini-batches it converges to where the mean
    gradient equals the first one.

    lr  alpha
    """

    exact = False

    class Correct(FedRecu.Correct):
        def work(
            self, me: FedRecu.Client, got: Phase.Down, f: Local
        ) -> tuple[FedRecu.Client, FedRecu.Correct.Up]:
            if f.round > 0:
                return super().work(me, got, f)
            return self.Client(x=got.x, g=f.grad(got.x, step=0)), self.Up(w=got.x)
