from undrift.core import Message, Method, Positive, State, Vec


class GD(Method):
    """x <- x - lr mean_i grad f_i(x).

    lr  step; 1/L of f is enough
    """

    title = "Gradient descent"
    paper = "Cauchy 1847"
    participation = "full"
    exact = True

    lr: Positive

    class Server(State):
        x: Vec

    class Down(Message):
        x: Vec

    class Up(Message):
        g: Vec

    def send(self, s):
        return self.Down(x=s.x)

    def work(self, me, got, f):
        return me, self.Up(g=f.grad(got.x, step=0))

    def merge(self, s, up, cohort):
        return self.Server(x=s.x - self.lr * up.g)
