"""A client: ``train`` does what the method asks of this node, with its own module, data and loss.

Start a node with ``--node-config "partition-id=0 states='/a/folder/that/stays'"``; the nodes of
Flower's simulation need neither.
"""

import torch
from flwr.app import Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from task import Net, samples
from torch.nn.functional import cross_entropy

import undrift as ud
from undrift.flower import train

app = ClientApp()


@app.train()
def work(msg: Message, context: Context) -> Message:
    data = samples(int(context.node_config["partition-id"]))
    return train(msg, context, ud.Neural(Net(), [data], loss=cross_entropy))


@app.evaluate()
def evaluate(msg: Message, context: Context) -> Message:
    model = Net()
    model.load_state_dict(msg.content.array_records["arrays"].to_torch_state_dict())
    x, y = samples(int(context.node_config["partition-id"])).tensors
    with torch.no_grad():
        loss = float(cross_entropy(model(x), y))
    metrics = MetricRecord({"loss": loss, "num-examples": len(y)})
    return Message(RecordDict({"metrics": metrics}), reply_to=msg)
