"""A user's file as a type checker sees it: ``test_user_file.py`` reads the comments."""

from typing import reveal_type

import undrift as ud
from undrift.core import OrTheory, Positive

run = ud.run(ud.Scaffold(lr=0.1), "quadratic", rounds=3, clients=4)
reveal_type(run)  # undrift.runs.results.Run
runs = ud.run([ud.Scaffold(lr=0.1)], "quadratic", rounds=3, seed=[0, 1])
reveal_type(runs)  # undrift.runs.results.Runs
reveal_type(ud.run(ud.Scaffold(lr=0.1), "quadratic", rounds=3, seed=[0]))  # results.Runs
reveal_type(run.history)  # undrift.runs.results.History
reveal_type(run.history["gap"])  # ndarray
reveal_type(run.x)  # torch._tensor.Tensor

reveal_type(ud.run([ud.GD(lr=0.1)], "quadratic", rounds=3))  # undrift.runs.results.Runs
reveal_type(ud.run_spec("spec.toml"))  # undrift.runs.results.Runs
reveal_type(ud.load("runs/first"))  # undrift.runs.results.Recorded

scaffold = ud.Scaffold(lr=0.1, option="I")
reveal_type(scaffold)  # undrift.methods.scaffold.Scaffold
reveal_type(scaffold.lr)  # float
reveal_type(scaffold.server_lr)  # float
ud.FedAvg(lr=1)

ud.Scaffold(lr="theroy")  # error: arg-type
ud.Scaffold(lr=0.1, option="III")  # error: arg-type
ud.Scaffold(rate=0.1)  # error: call-arg
ud.Scaffold()  # error: call-arg
ud.run(ud.Scaffold(lr=0.1), "quadratic")  # error: call-overload
ud.run(ud.Scaffold(lr=0.1), "quadratic", rounds="many")  # error: call-overload
ud.run("Scaffold", "quadratic", rounds=3)  # error: arg-type
ud.Scafold(lr=0.1)  # error: attr-defined


class Mine(ud.Method):
    """Half of Scaffold: a method of one's own, typed.

    Args:
        lr: the local step size.
        server_lr: the server's step size.
    """

    lr: OrTheory[Positive]
    server_lr: Positive = 1.0

    class Server(ud.State):
        x: ud.Vec

    class Client(ud.State):
        g: ud.Vec

    class Down(ud.Message):
        x: ud.Vec

    class Up(ud.Message):
        dy: ud.Vec

    def client(self, x0: ud.Vec) -> Client:
        return self.Client(g=0 * x0)

    def send(self, s: Server) -> Down:
        return self.Down(x=s.x)

    def work(self, me: Client, got: Down, f: ud.Local) -> tuple[Client, Up]:
        reveal_type(f.round)  # int
        y = f.sgd(got.x, self.lr, lambda y, grad: grad(y) - me.g)
        reveal_type(y)  # torch._tensor.Tensor
        print(f.sdg)  # error: attr-defined
        print(me.c)  # error: attr-defined
        return self.Client(g=me.g), self.Up(dy=self.server_lr * (y - got.x))


mine = Mine(lr="theory")
reveal_type(mine.lr)  # float
Mine(lr="theroy")  # error: arg-type
Mine(lr=0.1, server_lr="theory")  # error: arg-type
Mine(lr=0.1, momentum=0.9)  # error: call-arg
reveal_type(ud.Simulate)  # undrift.engines.engine.Simulate


class Theirs(ud.FedAvg):
    """A subclass reads inherited hyper-parameters as numbers."""

    def halved(self) -> float:
        reveal_type(self.lr)  # float
        return self.lr / 2


ud.FedAvg(lr="theory")
reveal_type(ud.Scaffold(lr="theory").lr)  # float
reveal_type(ud.FedAvg(lr="theory").lr)  # float
ud.Scaffold(lr="theroy")  # error: arg-type
ud.FedDyn(lr=0.1, alpha="theory")  # error: arg-type
