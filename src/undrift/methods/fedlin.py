from __future__ import annotations

from undrift.core import Cohort, Count, Local, Message, OrTheory, Phase, Positive, Sparse, Vec
from undrift.methods._shared import AnchorGradient, Averaging
from undrift.theory import Known, rules, steps


def step_size(method: FedLin, known: Known) -> float:
    """Also for FedLinTopK, whose constants under compression could not be confirmed."""
    rule = steps.fedlin_convex if known.convex else steps.fedlin_nonconvex
    return rule(known.L, known.steps)


class FedLin(AnchorGradient):
    r"""FedLin: local steps corrected by gradients exchanged at the start of the round.

    Clients first send g_i(x) and receive the mean g; then K steps from y = x, and the mean:

    .. math::

        y &\leftarrow y - \eta (g_i(y) - g_i(x) + g) \\
        x &\leftarrow \mathrm{mean}_i\, y_i

    With mini-batches the gradients at x are those of the first local step's batch.

    Args:
        lr: eta, the local step size.

    Example:
        >>> import undrift as ud
        >>> run = ud.run(ud.FedLin(lr=0.02), "quadratic", rounds=100, steps=5)
        >>> run.history.last["gap"] < 1e-6
        True

    References:
        Mitra, Jaafar, Pappas and Hassani, "Linear Convergence in Federated Learning: Tackling
        Client Heterogeneity and Sparse Gradients", NeurIPS 2021, arXiv:2102.07053.
    """

    title = "Local steps corrected by fresh gradients"
    paper = "Mitra et al., NeurIPS 2021"
    exact = True
    needs_sgd = ""
    prescribed = rules(lr=step_size)

    lr: OrTheory[Positive]

    class Anchor(AnchorGradient.Anchor):
        def work(
            self, me: AnchorGradient.Client, got: Phase.Down, f: Local
        ) -> tuple[AnchorGradient.Client, AnchorGradient.Anchor.Up]:
            g = f.grad(got.x, step=0)
            return me.replace(x=got.x, g=g), self.Up(g=g)

    def work(
        self, me: AnchorGradient.Client, got: AnchorGradient.Down, f: Local
    ) -> tuple[AnchorGradient.Client, Averaging.Up]:
        y = f.sgd(me.x, self.lr, lambda y, grad: grad(y) - me.g + got.g)
        return me, self.Up(y=y)


class FedLinTopK(FedLin):
    r"""FedLin whose gradient exchange is sparse, with error feedback on both sides.

    Clients and the server send only the largest entries of their gradients and add what they left
    out to the next:

    .. math::

        u_i &= e_i + g_i(x), & \text{sends } \mathrm{top}_k(u_i),
            & e_i \leftarrow u_i - \mathrm{top}_k(u_i) \\
        u &= e + \mathrm{mean}_i\, \mathrm{top}_k(u_i), & \text{sends } g = \mathrm{top}_k(u),
            & e \leftarrow u - g

    The local steps are FedLin's. The first round is sent whole. Compression on the server's side
    stays exact; on the clients' side it leaves a floor that shrinks with lr.

    Args:
        lr: eta, the local step size.
        k_server: The entries that the server sends; all when absent.
        k_client: The entries that a client sends; all when absent.

    Example:
        >>> import undrift as ud
        >>> run = ud.run(ud.FedLinTopK(lr=0.01, k_server=2), "quadratic", rounds=200, steps=5)
        >>> run.history.last["gap"] < 1e-6
        True

    References:
        Mitra, Jaafar, Pappas and Hassani, "Linear Convergence in Federated Learning: Tackling
        Client Heterogeneity and Sparse Gradients", NeurIPS 2021, arXiv:2102.07053.
    """

    title = "FedLin with sparse gradients and error feedback"
    paper = "Mitra et al., NeurIPS 2021"
    affine = False
    coordinatewise = True
    robust = False
    needs_mean = "what a client has sent must count: it keeps only what it has not sent yet"
    prescribed = FedLin.prescribed

    k_server: Count | None
    k_client: Count | None = None

    class Server(AnchorGradient.Server):
        e: Vec

    class Client(AnchorGradient.Client):
        e: Vec

    class Anchor(Phase):
        class Up(Message):
            g: Sparse

        def work(
            self, me: FedLinTopK.Client, got: Phase.Down, f: Local
        ) -> tuple[FedLinTopK.Client, Up]:
            g = f.grad(got.x, step=0)
            u = me.e + g
            sent = top(self.k_client if f.round else None, u)
            return me.replace(e=u - sent, x=got.x, g=g), self.Up(g=sent)

        def merge(self, s: FedLinTopK.Server, up: Up, cohort: Cohort) -> FedLinTopK.Server:
            u = s.e + up.g
            sent = top(self.k_server if cohort.round else None, u)
            return s.replace(e=u - sent, g=sent)

    class Down(Message):
        g: Sparse

    def server(self, x0: Vec) -> Server:
        return self.Server(x=x0, e=0 * x0)

    def client(self, x0: Vec) -> Client:
        return self.Client(e=0 * x0)


def top(k: int | None, u: Vec) -> Vec:
    """``u`` with all but its k largest entries (in absolute value) set to zero."""
    if k is None or k >= u.shape[-1]:
        return u
    kept = u.abs().topk(k, dim=-1).indices
    return (0 * u).scatter(-1, kept, u.gather(-1, kept))
