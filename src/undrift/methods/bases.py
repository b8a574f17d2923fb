"""What several methods share: an anchor gradient before the local work, and random communication."""

from undrift.core import Message, Method, Phase, Probability, Scratch, State, Vec


class AnchorGradient(Method, abstract=True):
    """Each round first exchanges gradients at the server's point x: the client then knows g_i(x)
    and their mean.

    In ``work``: ``me.x`` is x, ``me.g`` is the client's gradient there, ``got.g`` the mean over the
    clients.
    """

    participation = "full"

    class Server(State):
        x: Vec
        g: Scratch

    class Client(State):
        x: Scratch
        g: Scratch

    class Anchor(Phase):
        class Down(Message):
            x: Vec

        class Up(Message):
            g: Vec

        def send(self, s):
            return self.Down(x=s.x)

        def work(self, me, got, f):
            g = f.grad(got.x)
            return me.replace(x=got.x, g=g), self.Up(g=g)

        def merge(self, s, up, cohort):
            return s.replace(g=up.g)

    class Down(Message):
        g: Vec

    class Up(Message):
        y: Vec

    def send(self, s):
        return self.Down(g=s.g)

    def merge(self, s, up, cohort):
        return s.replace(x=up.y)


class RandomCommunication(Method, abstract=True):
    """Clients communicate after each local step with probability p, all at once: a round is
    Geometric(p) steps.
    """

    p: Probability
    participation = "full"
    equal_steps = True

    def local_steps(self, now):
        return [int(now.coin.geometric(self.p))] * len(now.steps)
