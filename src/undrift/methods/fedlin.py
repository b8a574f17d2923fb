from undrift.core import Count, Message, Positive, Scratch, Sparse, State, Vec
from undrift.methods.bases import AnchorGradient


class FedLin(AnchorGradient):
    """Clients: y = x, then K times y <- y - lr (g_i(y) - g_i(x) + g), g = mean_i g_i(x).  Server: x
    <- mean_i y_i.

    With mini-batches the gradients at x are those of the first local step's batch.

    lr  eta, local step
    """

    title = "Local steps corrected by fresh gradients"
    paper = "Mitra et al., NeurIPS 2021"
    exact = True

    lr: Positive

    class Anchor(AnchorGradient.Anchor):
        def work(self, me, got, f):
            g = f.grad(got.x, step=0)
            return me.replace(x=got.x, g=g), self.Up(g=g)

    def work(self, me, got, f):
        y = f.sgd(me.x, self.lr, lambda y, grad: grad(y) - me.g + got.g)
        return me, self.Up(y=y)


class FedLinTopK(FedLin):
    """FedLin whose gradient exchange keeps the largest entries only, with error feedback on each
    side.

    Client: u = e_i + g_i(x), sends top_k(u), e_i = u - top_k(u).  Server: u = e + mean, g =
    top_k(u), e = u - g.
    The first round is sent whole. Server-side compression stays exact; client-side leaves a floor
    that shrinks with lr.

    lr        eta, local step
    k_server  entries the server sends back
    k_client  entries a client sends (all when absent)
    """

    title = "FedLin with sparse gradients and error feedback"
    paper = "Mitra et al., NeurIPS 2021"
    affine = False
    coordinatewise = True

    k_server: Count | None
    k_client: Count | None = None

    class Server(State):
        x: Vec
        e: Vec
        g: Scratch

    class Client(State):
        e: Vec
        x: Scratch
        g: Scratch

    class Anchor(FedLin.Anchor):
        class Up(Message):
            g: Sparse

        def work(self, me, got, f):
            g = f.grad(got.x, step=0)
            u = me.e + g
            sent = top(self.k_client if f.round else None, u)
            return self.Client(e=u - sent, x=got.x, g=g), self.Up(g=sent)

        def merge(self, s, up, cohort):
            u = s.e + up.g
            sent = top(self.k_server if cohort.round else None, u)
            return self.Server(x=s.x, e=u - sent, g=sent)

    class Down(Message):
        g: Sparse

    def server(self, x0):
        return self.Server(x=x0, e=0 * x0)

    def client(self, x0):
        return self.Client(e=0 * x0)


def top(k: int | None, u: Vec) -> Vec:
    """``u`` with all but its k largest entries (in absolute value) set to zero."""
    if k is None or k >= u.shape[-1]:
        return u
    kept = u.abs().topk(k, dim=-1).indices
    return (0 * u).scatter(-1, kept, u.gather(-1, kept))
