"""The server: a method of undrift in the place of Flower's FedAvg."""

import torch
from flwr.app import ArrayRecord, Context
from flwr.serverapp import Grid, ServerApp
from safetensors.torch import save_file
from task import Net

import undrift as ud
from undrift.flower import strategy

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    config = context.run_config
    scaffold = strategy(
        ud.Scaffold(lr=0.1),
        clients=int(config["clients"]),
        steps=5,
        batch=16,
        fraction_evaluate=float(config["fraction-evaluate"]),
    )
    torch.manual_seed(0)
    first = ArrayRecord(Net().state_dict())
    result = scaffold.start(grid, initial_arrays=first, num_rounds=int(config["rounds"]))
    save_file(result.arrays.to_torch_state_dict(), str(config["save"]))
