"""The ClientApp of the contender Flower, in a module that Ray's workers can import."""

from __future__ import annotations

from functools import cache

import numpy as np
import torch
from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from torch import nn

from benchmarks.peers.torch_parts import network, shuffles, tensors, train
from benchmarks.peers.workloads import WORKLOADS

app = ClientApp()


@app.train()
def local(message: Message, context: Context) -> Message:
    """A client's round: the plain loop's local training."""
    name = str(message.content["config"]["workload"])
    workload, client = WORKLOADS[name], int(context.node_config["partition-id"])
    x, y, net = held(name)
    net.load_state_dict(message.content["arrays"].to_torch_state_dict())
    train(
        net, *tensors(x[client], y[client]), workload, shuffles(workload, np.random.default_rng())
    )
    content = {
        "arrays": ArrayRecord(net.state_dict()),
        "metrics": MetricRecord({"num-examples": workload.samples}),
    }
    return Message(content=RecordDict(content), reply_to=message)


@cache
def held(name: str) -> tuple[np.ndarray, np.ndarray, nn.Module]:
    """Data and model of this worker, which has one core."""
    torch.set_num_threads(1)
    return *WORKLOADS[name].data(), network(WORKLOADS[name])
