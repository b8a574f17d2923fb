"""Plain convolutional networks: convolution, ReLU and max-pooling, then one hidden layer."""

from collections.abc import Sequence
from itertools import pairwise

from torch import nn

from undrift.models.net import Net


def cnn(channels: int, size: int, classes: int) -> Net:
    """FedRecu's network as its code has it: no dropout, a hidden layer of 84."""
    return _convolutional(channels, size, classes, (32, 64, 128), kernel=5, padding=1, hidden=84)


def cnn_paper(channels: int, size: int, classes: int, *, dropout: float = 0.25) -> Net:
    """FedRecu's network as in its paper, with 3x3 kernels that keep the size (it names none)."""
    return _convolutional(
        channels, size, classes, (32, 64, 128), kernel=3, padding=1, hidden=256, dropout=dropout
    )


def cnn_small(
    channels: int, size: int, classes: int, *, widths: Sequence[int] = (8, 16), hidden: int = 32
) -> Net:
    """Small enough for a CPU: 5x5 convolutions, or padded 3x3 ones for the smallest images."""
    kernel, padding = (5, 0) if _side(size, len(widths), 5, 0) > 0 else (3, 1)
    return _convolutional(
        channels, size, classes, widths, kernel=kernel, padding=padding, hidden=hidden
    )


def _convolutional(
    channels: int,
    size: int,
    classes: int,
    widths: Sequence[int],
    *,
    kernel: int,
    padding: int,
    hidden: int,
    dropout: float = 0.0,
) -> Net:
    side = _side(size, len(widths), kernel, padding)
    if side < 1:
        raise ValueError(
            f"{size}x{size} images are too small for {len(widths)} convolutions "
            f"of {kernel}x{kernel}"
        )
    trunk = [
        nn.Sequential(nn.Conv2d(inner, outer, kernel, padding=padding), nn.ReLU(), nn.MaxPool2d(2))
        for inner, outer in pairwise([channels, *widths])
    ]
    trunk.append(nn.Sequential(nn.Flatten(), nn.Linear(widths[-1] * side**2, hidden), nn.ReLU()))
    return Net(trunk, nn.Identity(), nn.Linear(hidden, classes), dropout)


def _side(size: int, layers: int, kernel: int, padding: int) -> int:
    """The side of an image after so many convolutions and poolings; not positive if too small."""
    for _ in range(layers):
        size = (size + 2 * padding - kernel + 1) // 2
    return size
