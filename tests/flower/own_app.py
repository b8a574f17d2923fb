"""A user's Flower app, its grid in this process."""

import pytest
import torch

pytest.importorskip("flwr", reason="flwr is not installed: pip install undrift[flower]")

from flwr.app import ArrayRecord, Context, Error, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid
from flwr.supercore.inflatable.inflatable_object import get_all_nested_objects
from torch import nn
from torch.nn import functional as F
from torch.utils.data import TensorDataset

import undrift as ud
from undrift.core import registry
from undrift.engines import Simulate
from undrift.flower import train

CLIENTS = 3


class Net(nn.Module):
    def __init__(self, seed=0):
        super().__init__()
        with torch.random.fork_rng():
            torch.manual_seed(seed)
            self.body, self.head = nn.Linear(4, 5), nn.Linear(5, 3)
        self.double()

    def forward(self, x):
        return self.head(torch.tanh(self.body(x)))


def samples(client, count=None):
    rng = torch.Generator().manual_seed(client)
    n = count or 7 + 3 * client
    x = torch.randn(n, 4, generator=rng, dtype=torch.float64) + client
    return TensorDataset(x, torch.randint(3, (n,), generator=rng))


class InProcess(Grid):
    """A grid that calls ClientApps at once, each time with a context that remembers nothing."""

    run = property(lambda self: None)

    def __init__(self, apps, config=None):
        self.apps, self.replies, self.pushed = apps, {}, []
        self.config = config or (lambda client: {"partition-id": client})
        self.lose = lambda message: False

    def set_run(self, run):
        raise NotImplementedError

    def create_message(self, *given, **named):
        raise NotImplementedError

    def get_node_ids(self):
        return [100 + client for client in range(len(self.apps))]

    def push_messages(self, messages):
        return [self.push(message) for message in messages]

    def push(self, message):
        id = message.metadata.__dict__["_message_id"] = f"{len(self.pushed)}"
        self.pushed.append(message)
        client = message.metadata.dst_node_id - 100
        context = Context(1, 100 + client, self.config(client), RecordDict(), {})
        try:
            reply = self.apps[client](message, context)
        except Exception as error:  # as a SuperNode does
            reply = Message(Error(2, f"{type(error)}:<'{error}'>"), reply_to=message)
        if self.lose(message):
            reply = Message(Error(5, "Node Unavailable"), reply_to=message)
        self.replies[id] = reply
        return id

    def pull_messages(self, message_ids):
        return [self.replies.pop(id) for id in [*message_ids] if id in self.replies]

    def send_and_receive(self, messages, *, timeout=None):
        return self.pull_messages(self.push_messages(messages))


def problem_of(net, *data, **loss):
    given = loss or {"loss": F.cross_entropy}
    return ud.Neural(net, [*data], **given).to(torch.float64, torch.device("cpu"))


def app_of(folder, part, mods=(), net=Net, data=None, **loss):
    app = ClientApp(mods=[*mods])

    @app.train()
    def work(msg, context):
        own = samples(part) if data is None else data
        problem = problem_of(net(seed=9), own, **loss)
        return train(msg, context, problem, states=folder)

    @app.evaluate()
    def evaluate(msg, context):
        net = Net()
        net.load_state_dict(msg.content["arrays"].to_torch_state_dict())
        own = samples(part)
        loss = F.cross_entropy(net(own.tensors[0]), own.tensors[1]).item()
        metrics = MetricRecord({"loss": loss, "num-examples": len(own)})
        return Message(RecordDict({"metrics": metrics}), reply_to=msg)

    return app


def grid_of(folder, clients=CLIENTS, **given):
    return InProcess([app_of(folder, client, **given) for client in range(clients)])


def begin(net=None):
    return ArrayRecord((net or Net()).state_dict())


def same(result, engine):
    net = Net()
    net.load_state_dict(result.arrays.to_torch_state_dict())
    x = torch.cat([p.detach().reshape(-1) for p in net.parameters()])
    return float((x - engine.x).norm() / engine.x.norm())


def simulated(method, rounds, **setting):
    problem = problem_of(Net(), *map(samples, range(CLIENTS)))
    engine = Simulate(method, problem, **setting)
    for _ in range(rounds):
        engine.run_round()
    return engine


def setting_of(method):
    steps = 3 if method.equal_steps else [3, 1, 2]
    cohort = None if method.participation == "full" else 2
    return {"steps": steps, "cohort": cohort, "batch": 4, "seed": 5}


def pushed_bytes(messages):
    """Of what a SuperLink is sent: it has every object once, by the digest of its bytes."""
    objects = {}
    for message in messages:
        objects |= get_all_nested_objects(message)
    return sum(len(one.deflate()) for one in objects.values())


RUNNABLE = sorted(name for name, kind in registry.items() if not kind.solves)
