"""How long FedSpeed's ascent step holds a ResNet-18-GN on the plateau near its start: a plain loop,
no engine of ours.

    UNDRIFT_DATA=FOLDER python benchmarks/plateau.py --rho 0.02

averages clients that take 10 steps of 0.1 on batches of 20 CIFAR-10 images, along the gradient at y
+ rho g/|g|, with
weight decay and clipping as in FedSpeed's Table 1. Prints the mean training loss of every round;
the plateau is ln 10.
"""

from __future__ import annotations

import argparse
import math

import torch
from torch import Tensor, nn
from torch.func import functional_call

from undrift.data.images import load_images
from undrift.models import build
from undrift.models.layout import flatten, unflatten

LR, DECAY, CLIP, STEPS, BATCH = 0.1, 1e-3, 10.0, 10, 20
MEAN, STD = (0.491, 0.482, 0.447), (0.247, 0.243, 0.262)


def main() -> None:
    asked = arguments()
    torch.manual_seed(0)
    data, net = load_images("cifar10"), build("resnet18", 3, 32, 10)
    vector, layout = flatten(net)
    x = vector.detach().float()
    mean, std = (torch.tensor(values).view(3, 1, 1) for values in (MEAN, STD))

    def grad(y: Tensor, images: Tensor, labels: Tensor) -> tuple[Tensor, float]:
        y = y.detach().requires_grad_()
        loss = nn.functional.cross_entropy(
            functional_call(net, unflatten(y, layout), (images,)), labels
        )
        return torch.autograd.grad(loss, y)[0], float(loss.detach())

    for number in range(1, asked.rounds + 1):
        ends, losses = [], []
        for _ in range(asked.clients):
            y = x
            for _ in range(STEPS):
                chosen = torch.randint(len(data.labels), (BATCH,))
                images, labels = (data.images[chosen] / 255 - mean) / std, data.labels[chosen]
                g, loss = grad(y, images, labels)
                if asked.rho:
                    g, _ = grad(y + asked.rho * g / g.norm(), images, labels)
                y = (1 - LR * DECAY) * y - LR * min(1.0, CLIP / float(g.norm())) * g
                losses.append(loss)
            ends.append(y)
        x = torch.stack(ends).mean(0)
        print(
            f"round {number}: loss {sum(losses) / len(losses):.3f} (ln 10 = {math.log(10):.3f})",
            flush=True,
        )


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rho", type=float, default=0.1)
    parser.add_argument("--clients", type=int, default=4)
    parser.add_argument("--rounds", type=int, default=26)
    return parser.parse_args()


if __name__ == "__main__":
    main()
