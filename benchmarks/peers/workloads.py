"""The workloads in NumPy alone: every contender takes its data, start and settings from here."""

from __future__ import annotations

import dataclasses
import math

import numpy as np

CLASSES = 10
KERNEL, PADDING = 5, 1
NOISY = 0.2
"""Share of labels that are drawn at random, so that no loss goes to zero."""

Arrays = list[np.ndarray]


@dataclasses.dataclass(frozen=True)
class Workload:
    """FedAvg: ``cohort`` of ``clients`` train ``epochs`` over their ``samples`` in batches of
    ``batch``, then average.

    The network has convolutions of 5x5 padded by 1, each with ReLU and max-pooling by 2, then
    hidden linear layers with
    ReLU, then one linear layer.
    """

    title: str
    clients: int
    cohort: int
    samples: int
    epochs: int
    batch: int
    lr: float
    shape: tuple[int, ...]
    """Of one sample: [p] float32 features, or [C, H, W] uint8 pixels."""
    convolutions: tuple[int, ...] = ()
    hidden: tuple[int, ...] = ()
    rounds: int = 5
    """Timed in each process, after the first."""
    repeats: int = 2
    """Processes of each contender."""

    @property
    def full(self) -> bool:
        """Whether a step takes all samples of a client."""
        return self.batch == self.samples

    @property
    def shapes(self) -> list[tuple[int, ...]]:
        """Of the weights and biases of all layers in turn, as PyTorch lays them out."""
        shapes: list[tuple[int, ...]] = []
        inner, side = self.shape[0], self.shape[-1]
        for outer in self.convolutions:
            shapes += [(outer, inner, KERNEL, KERNEL), (outer,)]
            inner, side = outer, (side + 2 * PADDING - KERNEL + 1) // 2
        inner = inner * side**2 if self.convolutions else math.prod(self.shape)
        for outer in (*self.hidden, CLASSES):
            shapes += [(outer, inner), (outer,)]
            inner = outer
        return shapes

    def start(self) -> Arrays:
        """Normal with variance 2 / fan in (He's), biases zero: deep networks learn from the first
        round on.
        """
        rng = np.random.default_rng(1)
        weights: Arrays = []
        for weight, bias in zip(self.shapes[::2], self.shapes[1::2], strict=True):
            deviation = math.sqrt(2 / math.prod(weight[1:]))
            weights += [
                rng.normal(0, deviation, weight).astype(np.float32),
                np.zeros(bias, np.float32),
            ]
        return weights

    def data(self) -> tuple[np.ndarray, np.ndarray]:
        """Samples ``[clients, samples, *shape]`` and labels; each client has its own mix of the
        classes.
        """
        rng = np.random.default_rng(0)
        shares = rng.dirichlet(np.full(CLASSES, 2.0), self.clients)
        y = np.stack([rng.choice(CLASSES, self.samples, p=share) for share in shares])
        make = self._images if len(self.shape) == 3 else self._features
        x = make(rng, y)
        noisy = rng.random(y.shape) < NOISY
        y[noisy] = rng.integers(CLASSES, size=int(noisy.sum()))
        return x, y

    def _features(self, rng: np.random.Generator, y: np.ndarray) -> np.ndarray:
        centres = rng.normal(scale=0.4, size=(CLASSES, *self.shape)).astype(np.float32)
        return centres[y] + rng.standard_normal((*y.shape, *self.shape), dtype=np.float32)

    def _images(self, rng: np.random.Generator, y: np.ndarray) -> np.ndarray:
        """Half of it the class's pattern, of 4 by 4 squares, and half noise."""
        channels, side = self.shape[0], self.shape[-1]
        pattern = rng.integers(128, size=(CLASSES, channels, 4, 4), dtype=np.uint8)
        pattern = pattern.repeat(side // 4, 2).repeat(side // 4, 3)
        x = np.empty((*y.shape, *self.shape), np.uint8)
        for client, labels in enumerate(y):
            x[client] = rng.integers(128, size=x.shape[1:], dtype=np.uint8) + pattern[labels]
        return x

    def loss(self, weights: Arrays, x: np.ndarray, y: np.ndarray) -> float:
        """The mean cross-entropy over samples ``[n, *shape]``, in float64."""
        total = 0.0
        for part in range(0, len(y), 100):
            labels = y[part : part + 100]
            scores = self._scores(weights, scaled(x[part : part + 100]))
            scores -= scores.max(1, keepdims=True)
            total += float(
                (np.log(np.exp(scores).sum(1)) - scores[np.arange(len(labels)), labels]).sum()
            )
        return total / len(y)

    def training_loss(self, weights: Arrays) -> float:
        """Over all samples, or 10 of each client where they are images."""
        x, y = self.data()
        each = 10 if len(self.shape) == 3 else self.samples
        return self.loss(weights, x[:, :each].reshape(-1, *self.shape), y[:, :each].reshape(-1))

    def _scores(self, weights: Arrays, h: np.ndarray) -> np.ndarray:
        layers = list(zip(weights[::2], weights[1::2], strict=True))
        for w, b in layers[: len(self.convolutions)]:
            h = np.pad(h, [(0, 0), (0, 0), (PADDING, PADDING), (PADDING, PADDING)])
            windows = np.lib.stride_tricks.sliding_window_view(h, (KERNEL, KERNEL), axis=(2, 3))
            h = np.maximum(np.tensordot(windows, w, axes=([1, 4, 5], [1, 2, 3])) + b, 0).transpose(
                0, 3, 1, 2
            )
            n, c, rows, columns = h.shape
            h = (
                h[:, :, : rows // 2 * 2, : columns // 2 * 2]
                .reshape(n, c, rows // 2, 2, columns // 2, 2)
                .max((3, 5))
            )
        h = h.reshape(len(h), -1).astype(np.float64)
        *hidden, (w, b) = layers[len(self.convolutions) :]
        for inner, bias in hidden:
            h = np.maximum(h @ inner.T + bias, 0)
        return h @ w.T + b


def scaled(x: np.ndarray) -> np.ndarray:
    """Samples as a network sees them: pixels from 0 to 1."""
    return x.astype(np.float32) / 255 if x.dtype == np.uint8 else x


WORKLOADS = {
    "logistic": Workload(
        "softmax regression 60-10, 100 of 1,000 clients, 50 samples each, 10 full-gradient steps",
        clients=1000,
        cohort=100,
        samples=50,
        epochs=10,
        batch=50,
        lr=0.1,
        shape=(60,),
        rounds=10,
    ),
    "mlp": Workload(
        "MLP 784-200-200-10, 10 of 100 clients, 600 samples each, 5 epochs of batch 50",
        clients=100,
        cohort=10,
        samples=600,
        epochs=5,
        batch=50,
        lr=0.05,
        shape=(1, 28, 28),
        hidden=(200, 200),
    ),
    "cnn": Workload(
        "CNN 32-64-128-84 on 32x32x3, 10 of 100 clients, 500 samples each, 1 epoch of batch 50",
        clients=100,
        cohort=10,
        samples=500,
        epochs=1,
        batch=50,
        lr=0.05,
        shape=(3, 32, 32),
        convolutions=(32, 64, 128),
        hidden=(84,),
        rounds=2,
        repeats=1,
    ),
}
