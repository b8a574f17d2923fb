"""A small federation of digits: unequal clients, short batches, crops, flips and rotations."""

import torch
from torch import nn

from undrift.core.streams import Streams
from undrift.data import partition
from undrift.data.augment import ImageAugmentation, Normalise, Pipeline
from undrift.data.images import load_images
from undrift.models import Net
from undrift.models.net import seeded
from undrift.problems.neural.problem import Neural

DIGITS = load_images("digits", subset=(60, 30))
PARTS = partition.dirichlet(DIGITS.labels.numpy(), 6, Streams(1).at("data"), beta=0.3)
PIPELINE = Pipeline(ImageAugmentation(padding=1, flip=True, rotation=15), Normalise((0.3,), (0.4,)))
CPU = torch.device("cpu")


def network(seed: int = 0, smooth: bool = False) -> Net:
    """``smooth``: without ReLU and max-pooling, at whose kinks a rounding may pick another side."""
    bend, pool = (nn.Softplus(), nn.AvgPool2d(2)) if smooth else (nn.ReLU(), nn.MaxPool2d(2))
    with seeded(seed):
        first = nn.Sequential(nn.Conv2d(1, 3, 3), nn.GroupNorm(1, 3), bend, pool)
        second = nn.Sequential(nn.Flatten(), nn.Linear(27, 8), nn.Tanh())
        return Net([first, second], nn.Linear(8, 6), nn.Linear(6, 10))


def federation(objective=None, dtype=torch.float64, smooth=False, **options) -> Neural:
    settings = {"pipeline": PIPELINE, "objective": objective, **options}
    return Neural(network(smooth=smooth), DIGITS, PARTS, **settings).to(dtype, CPU)


def close(got, want, tol=1e-12):
    torch.testing.assert_close(got, want, rtol=tol, atol=tol)


def points(problem, clients=None, seed=0):
    generator = torch.Generator().manual_seed(seed)
    shift = torch.randn(
        clients or problem.clients, problem.dim, dtype=torch.float64, generator=generator
    )
    return (problem.start() + 0.1 * shift).to(problem.dtype)


def seen(images):
    return (images.double() / 255 - 0.3) / 0.4
