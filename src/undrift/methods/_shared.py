"""What several methods share: local SGD, an exchange of gradients, random communication."""

from __future__ import annotations

from collections.abc import Sequence

from undrift.core import Cohort, Local, Message, Method, Phase, Round, Scratch, State, Vec
from undrift.core.params import OrTheory, Positive, Probability
from undrift.theory import Known


class LocalSGD(Method, abstract=True):
    """Clients take K gradient steps from x and upload how far they moved."""

    weighted = True
    robust = True
    needs_sgd = ""

    lr: OrTheory[Positive]
    server_lr: Positive = 1.0

    class Up(Message):
        dy: Vec

    def work(self, me: State, got: Method.Down, f: Local) -> tuple[State, Up]:
        y = f.sgd(got.x, self.lr)
        return me, self.Up(dy=y - got.x)


class Averaging(Method, abstract=True):
    """Clients upload a point y, and the server's x becomes the mean of them."""

    class Up(Message):
        y: Vec

    def merge(self, s: Method.Server, up: Up, cohort: Cohort) -> Method.Server:
        return s.replace(x=up.y)

    def centre(self, s: Method.Server) -> Up:
        return self.Up(y=s.x)


class AnchorGradient(Averaging, abstract=True):
    """Each round first exchanges gradients at the server's point x.

    In ``work``, ``me.x`` is x, ``me.g`` the client's gradient there, ``got.g`` the clients' mean.
    """

    participation = "full"
    robust = True

    class Server(State):
        x: Vec
        g: Scratch

    class Client(State):
        x: Scratch
        g: Scratch

    class Anchor(Phase):
        class Up(Message):
            g: Vec

        def work(
            self, me: AnchorGradient.Client, got: Phase.Down, f: Local
        ) -> tuple[AnchorGradient.Client, Up]:
            g = f.grad(got.x)
            return me.replace(x=got.x, g=g), self.Up(g=g)

        def merge(self, s: AnchorGradient.Server, up: Up, cohort: Cohort) -> AnchorGradient.Server:
            return s.replace(g=up.g)

    class Down(Message):
        g: Vec


class RandomCommunication(Averaging, abstract=True):
    """All clients communicate after a local step with probability p: Geometric(p) steps a round."""

    participation = "full"
    equal_steps = True

    p: OrTheory[Probability]

    def local_steps(self, now: Round) -> Sequence[int]:
        return [int(now.coin.geometric(self.p))] * len(now.steps)


def averaged(average: str, known: Known) -> bool:
    """Whether the convex theorems of Jiang et al. hold, which are for plain averaging."""
    return known.convex and average == "avg"


def similarity(average: str, known: Known) -> float:
    """delta_A in the convex theorems of Jiang et al., delta_B in the others."""
    return known.delta_A if averaged(average, known) else known.delta_B
