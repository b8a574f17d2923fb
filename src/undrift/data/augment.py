"""Random crops, flips and rotations: drawn on the host, applied to a whole batch on the device.

Each operation moves whole pixels, so a chain of them is one map from output to input pixels:
``apply`` composes the maps and gathers once, which gives exactly what applying the operations one
after another would.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Generic, Literal, TypeVar

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from undrift._device import upload
from undrift.core.params import unknown

if TYPE_CHECKING:
    import torch
    from torch import Tensor

Array = TypeVar("Array", NDArray[np.generic], "Tensor")
Operation = Literal["rotate", "crop", "flip"]


@dataclasses.dataclass(frozen=True)
class ImageDraws(Generic[Array]):
    """What was drawn for ``n`` images, as NumPy arrays or as tensors."""

    offsets: Array
    """``[n, 2]`` int64: row and column of the crop in the padded image."""
    flips: Array
    """``[n]`` bool."""
    angles: Array
    """``[n]`` float64: degrees, counter-clockwise."""

    @property
    def parts(self) -> tuple[Array, Array, Array]:
        """All of it, in the order of the fields."""
        return self.offsets, self.flips, self.angles

    @classmethod
    def join(
        cls, many: Sequence[ImageDraws[NDArray[np.generic]]]
    ) -> ImageDraws[NDArray[np.generic]]:
        """The draws of several batches, one after another."""
        return ImageDraws(*map(np.concatenate, zip(*(draws.parts for draws in many), strict=True)))

    def to(self, device: torch.device | str) -> ImageDraws[Tensor]:
        """As tensors on ``device``."""
        import torch

        return ImageDraws(*(upload(np.asarray(v), torch.device(device)) for v in self.parts))

    def columns(self, rows: int, which: slice) -> ImageDraws[Array]:
        """Those for some images of each of ``rows`` batches, which are equally large."""
        return ImageDraws(
            *(
                v.reshape(rows, -1, *v.shape[1:])[:, which].reshape(-1, *v.shape[1:])
                for v in self.parts
            )
        )

    def batches(self, rows: int, which: Tensor) -> ImageDraws[Array]:
        """Those for all images of some of these batches, as often as they are asked for."""
        return ImageDraws(
            *(v.reshape(rows, -1, *v.shape[1:])[which].flatten(0, 1) for v in self.parts)
        )


@dataclasses.dataclass(frozen=True)
class ImageAugmentation:
    """Random changes to images, in the given order.

    Args:
        padding: zeros around the image before it is cropped back to its size at a uniform place.
        crop_probability: how often the crop happens at all.
        flip: mirror left and right, half of the time.
        rotation: about the centre, by uniform degrees in ±``rotation``; nearest neighbour, zeros
            outside.
        order: what is done first.
    """

    padding: int = 0
    crop_probability: float = 1.0
    flip: bool = False
    rotation: float = 0.0
    order: tuple[Operation, ...] = ("rotate", "crop", "flip")

    def __post_init__(self) -> None:
        if sorted(self.order) != ["crop", "flip", "rotate"]:
            raise ValueError(
                f"order = {self.order} is not allowed: rotate, crop and flip, each once"
            )
        if self.padding < 0 or self.rotation < 0 or not 0 <= self.crop_probability <= 1:
            raise ValueError(
                f"{self} is not allowed: padding and rotation are >= 0, "
                "crop_probability is in [0, 1]"
            )

    def draw(self, rng: Generator, n: int) -> ImageDraws[NDArray[np.generic]]:
        """Decide for ``n`` images; what is switched off draws nothing."""
        offsets = np.full((n, 2), self.padding)
        if self.padding:
            offsets = rng.integers(2 * self.padding + 1, size=(n, 2))
        if self.padding and self.crop_probability < 1:
            offsets[rng.random(n) >= self.crop_probability] = self.padding
        return ImageDraws(
            offsets,
            rng.random(n) < 0.5 if self.flip else np.zeros(n, dtype=bool),
            rng.uniform(-self.rotation, self.rotation, n) if self.rotation else np.zeros(n),
        )

    def apply(self, images: Tensor, draws: ImageDraws[Tensor]) -> Tensor:
        """The images ``[n, C, H, W]``, of any dtype, changed by draws on the same device."""
        import torch

        _, _, height, width = images.shape
        rows = torch.arange(height, device=images.device)[None, :, None]
        cols = torch.arange(width, device=images.device)[None, None, :]
        inside = torch.ones((), dtype=torch.bool, device=images.device)
        for operation in reversed(self.order):
            if operation == "flip" and self.flip:
                cols = torch.where(draws.flips[:, None, None], width - 1 - cols, cols)
                continue
            if operation == "crop" and self.padding:
                rows = rows + (draws.offsets[:, 0] - self.padding)[:, None, None]
                cols = cols + (draws.offsets[:, 1] - self.padding)[:, None, None]
            elif operation == "rotate" and self.rotation:
                rows, cols = _rotated(rows, cols, draws.angles[:, None, None], height, width)
            inside = inside & (rows >= 0) & (rows < height) & (cols >= 0) & (cols < width)
        source = rows.clamp(0, height - 1) * width + cols.clamp(0, width - 1)
        source = source.expand(len(images), height, width).reshape(len(images), 1, -1)
        moved = images.flatten(2).gather(2, source.expand(-1, images.shape[1], -1)).view_as(images)
        return torch.where(inside.expand(len(images), height, width)[:, None], moved, 0)


def _rotated(
    rows: Tensor, cols: Tensor, degrees: Tensor, height: int, width: int
) -> tuple[Tensor, Tensor]:
    """Where the pixels of rotated images come from.

    In Pillow's 16.16 fixed point: no device rounds differently.
    """
    import torch

    cos, sin = torch.deg2rad(degrees).cos(), torch.deg2rad(degrees).sin()
    up, left = (height - 1) / 2, (width - 1) / 2

    def fixed(x: Tensor) -> Tensor:
        return (x * 65536 + 0.5).floor().long()

    from_row = fixed(sin) * cols + fixed(cos) * rows + fixed(height / 2 - cos * up - sin * left)
    from_col = fixed(cos) * cols + fixed(-sin) * rows + fixed(width / 2 - cos * left + sin * up)
    return from_row >> 16, from_col >> 16


@dataclasses.dataclass(frozen=True)
class Normalise:
    """Bytes to floating point: divided by 255, minus ``mean``, over ``std``, per channel."""

    mean: tuple[float, ...]
    std: tuple[float, ...]

    def __call__(self, images: Tensor, dtype: torch.dtype | None = None) -> Tensor:
        import torch

        if images.dtype != torch.uint8 or images.shape[-3] != len(self.mean):
            raise ValueError(
                f"images to normalise are uint8 [n, {len(self.mean)}, H, W]; "
                f"got {images.dtype} {list(images.shape)}"
            )
        dtype = dtype or torch.float32
        mean, std = (_channels(values, images.device, dtype) for values in (self.mean, self.std))
        return (images.to(dtype) / 255 - mean) / std


_kept: dict[tuple[tuple[float, ...], torch.device, torch.dtype], Tensor] = {}


def _channels(values: tuple[float, ...], device: torch.device, dtype: torch.dtype) -> Tensor:
    """One constant per channel, kept: a CUDA graph may not copy from the host."""
    import torch

    if (key := (values, device, dtype)) not in _kept:
        _kept[key] = torch.tensor(values, device=device, dtype=dtype)[:, None, None]
    return _kept[key]


@dataclasses.dataclass(frozen=True)
class Pipeline:
    """From bytes to what a network sees in training; in testing it sees ``normalise(images)``.

    ``fill`` is what crops and rotations show outside of the image: ``black`` is 0 before
    normalisation (torchvision's transforms of images), ``mean`` is 0 after it (FL-Simulator, which
    pads normalised images).
    """

    augmentation: ImageAugmentation
    normalise: Normalise
    fill: Literal["black", "mean"] = "black"

    def __call__(
        self, images: Tensor, draws: ImageDraws[Tensor], dtype: torch.dtype | None = None
    ) -> Tensor:
        if self.fill == "mean":
            return self.augmentation.apply(self.normalise(images, dtype), draws)
        return self.normalise(self.augmentation.apply(images, draws), dtype)


def fedrecu(dataset: str = "cifar10") -> Pipeline:
    """FedRecu's code: crop, flip; CIFAR-10's statistics for CIFAR-100 too."""
    known = {"cifar10": _CIFAR10, "cifar100": _CIFAR10}
    return Pipeline(ImageAugmentation(padding=4, flip=True), _pick(dataset, known))


def fedacg(dataset: str = "cifar10") -> Pipeline:
    """FedACG's code: rotation, crop, flip."""
    known = {"cifar10": _CIFAR10, "cifar100": _CIFAR100, "tiny-imagenet": _TINY}
    return Pipeline(ImageAugmentation(padding=4, flip=True, rotation=10), _pick(dataset, known))


def fedspeed(dataset: str = "cifar10") -> Pipeline:
    """FedSpeed's code (FL-Simulator): flip, then half of the images cropped; padded by the mean."""
    half = (0.5, 0.5, 0.5)
    cifar10 = Normalise((0.491, 0.482, 0.447), (0.247, 0.243, 0.262))
    known = {"cifar10": cifar10, "cifar100": _CIFAR100, "tiny-imagenet": Normalise(half, half)}
    padding = 8 if dataset == "tiny-imagenet" else 4
    augmentation = ImageAugmentation(
        padding, crop_probability=0.5, flip=True, order=("rotate", "flip", "crop")
    )
    return Pipeline(augmentation, _pick(dataset, known), fill="mean")


presets = {"fedacg": fedacg, "fedrecu": fedrecu, "fedspeed": fedspeed}

_CIFAR10 = Normalise((0.4914, 0.4822, 0.4465), (0.2023, 0.1994, 0.2010))
_CIFAR100 = Normalise((0.5071, 0.4867, 0.4408), (0.2675, 0.2565, 0.2761))
_TINY = Normalise((0.4802, 0.4481, 0.3975), (0.2770, 0.2691, 0.2821))


def _pick(dataset: str, known: Mapping[str, Normalise]) -> Normalise:
    if dataset not in known:
        raise ValueError(unknown("data set", dataset, known))
    return known[dataset]
