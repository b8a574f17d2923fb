"""Image sets by name. torch and the decoders are loaded on first use."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from undrift.core.params import unknown
from undrift.data import archives
from undrift.data.cards import CARDS, Card, info
from undrift.data.files import FOLDER, BadData, digest, existing_folder
from undrift.data.pixels import Labels, Pixels, cached, check

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["BadData", "Card", "ImageSet", "Verified", "info", "load_images", "verify"]

Reader = Callable[[Path], Pixels]
_readers: Mapping[str, Mapping[str, Reader]] = {
    "cifar10": {
        "cifar-10-binary.tar.gz": archives.cifar10,
        "cifar10.npz.xz": cached(archives.pack),
    },
    "cifar100": {
        "cifar-100-binary.tar.gz": archives.cifar100,
        "cifar100.npz.xz": cached(archives.pack),
    },
    "mnist": {
        "train-images-idx3-ubyte.gz": archives.mnist,
        "train-images-idx3-ubyte": archives.mnist,
        "mnist.tar.xz": archives.mnist_tar,
    },
    "tiny-imagenet": {"tiny-imagenet-200.zip": cached(archives.tiny_imagenet)},
}


@dataclasses.dataclass(frozen=True, eq=False)
class ImageSet:
    """Images uint8 ``[n, C, H, W]``, neither scaled nor normalised, and labels int64 ``[n]``.

    A network of one's own may take other inputs: any tensor whose first axis counts the samples.
    ``note`` is a caveat printed beside every accuracy measured on them ("JPEG q80").
    """

    images: Tensor
    labels: Tensor
    test_images: Tensor
    test_labels: Tensor
    classes: tuple[str, ...]
    name: str
    note: str = ""


@dataclasses.dataclass(frozen=True)
class Verified:
    """A verified image set: images per class, their shape, and the SHA-256 of the files read."""

    name: str
    shape: tuple[int, ...]
    train: Mapping[str, int]
    test: Mapping[str, int]
    hashes: Mapping[str, str]
    note: str = ""


def load_images(
    name: str = "digits",
    folder: str | Path | None = None,
    subset: tuple[int | None, int | None] = (None, None),
) -> ImageSet:
    """The image set ``name``, from ``folder`` (default: ``$UNDRIFT_DATA``).

    The embedded ``digits`` needs no folder. cifar10, cifar100, mnist and tiny-imagenet are read
    from their official archives, or from packs; any other name is a sub-folder with
    ``train/CLASS/*`` and ``test/CLASS/*``. ``subset`` keeps that many train and test images, the
    first ones of every class in equal numbers; ``None`` keeps all.

    >>> load_images("digits", subset=(20, 10)).images.shape
    torch.Size([20, 1, 8, 8])
    """
    import torch

    pixels = _read(name, folder)
    train = _first(pixels.labels, subset[0], "train")
    test = _first(pixels.test_labels, subset[1], "test")
    return ImageSet(
        torch.from_numpy(pixels.images[train]),
        torch.from_numpy(pixels.labels[train]),
        torch.from_numpy(pixels.test_images[test]),
        torch.from_numpy(pixels.test_labels[test]),
        pixels.classes,
        name,
        pixels.note,
    )


def verify(name: str, folder: str | Path | None = None) -> Verified:
    """Read every image and compare with what is known of the set; all differences are reported."""
    pixels = _read(name, folder)
    files = [] if name == "digits" else _files(find(name, folder)[0])
    counts = [
        np.bincount(labels, minlength=len(pixels.classes))
        for labels in (pixels.labels, pixels.test_labels)
    ]
    if name in CARDS and (problems := list(_differences(CARDS[name], pixels, counts, files))):
        raise BadData("\n".join(problems))
    train, test = (dict(zip(pixels.classes, count.tolist(), strict=True)) for count in counts)
    hashes = {file.name: digest(file) for file in files}
    return Verified(name, pixels.images.shape[1:], train, test, hashes, pixels.note)


def _read(name: str, folder: str | Path | None) -> Pixels:
    if name == "digits":
        return check(_digits(), name)
    path, read = find(name, folder)
    return check(read(path), path)


def find(name: str, folder: str | Path | None) -> tuple[Path, Reader]:
    """The path of the set and its reader; raises if there is none."""
    plain = Path(name).name == name and name not in ("", "..")
    if not plain or not (name in CARDS or folder or os.environ.get(FOLDER)):
        raise BadData(unknown("image set", name, CARDS))
    root = existing_folder(folder)
    readers = _readers.get(name, {})
    for file, read in readers.items():
        if (root / file).is_file():
            return root / file, read
    if (root / name / "train").is_dir():
        return root / name, archives.image_folder
    looked = f"looked for {', '.join([*readers, f'{name}/train'])} in {root}"
    if name not in CARDS:
        raise BadData(f"{unknown('image set', name, CARDS)}; {looked}")
    raise BadData(
        f"{name} is not there: {looked}; fetch it, or name another folder (pickled versions are "
        "never opened)"
    )


def _digits() -> Pixels:
    """scikit-learn's digits scaled to 0..255; a fixed permutation picks 4/5 for training."""
    from sklearn.datasets import load_digits

    values, target = load_digits(return_X_y=True)
    images = np.rint(values * (255 / 16)).astype(np.uint8).reshape(-1, 1, 8, 8)
    # NumPy promises that this stream never changes.
    order = np.random.RandomState(0).permutation(len(images))
    train, test = np.split(order, [len(order) * 4 // 5])
    labels = target.astype(np.int64)
    return Pixels(images[train], labels[train], images[test], labels[test], tuple("0123456789"))


def _first(labels: Labels, count: int | None, part: str) -> Labels | slice:
    """The first ``count`` positions when classes take turns, ascending; a view of all for none."""
    if count is None:
        return slice(None)
    if not 1 <= count <= len(labels):
        raise ValueError(
            f"a subset of {count} {part} images is not possible; give 1 to {len(labels)}"
        )
    order = np.argsort(labels, kind="stable")
    turn = np.empty_like(order)
    turn[order] = np.arange(len(labels)) - np.searchsorted(labels[order], labels[order])
    return np.sort(np.lexsort((labels, turn))[:count])


def _files(path: Path) -> list[Path]:
    """The files a set is read from; a folder of images has too many to name."""
    if path.is_dir():
        return []
    return archives.idx_files(path.parent) if "-idx" in path.name else [path]


def _differences(
    card: Card, pixels: Pixels, counts: Sequence[Labels], files: Sequence[Path]
) -> Iterator[str]:
    for file in files:
        official = card.files.get(file.name)
        if official and official != (md5 := digest(file, "md5")):
            yield f"{file} has MD5 {md5}, but the official file has {official}; fetch it again"
    if (shape := pixels.images.shape[1:]) != card.shape:
        yield f"{card.name} has images of shape {shape}, but the official ones have {card.shape}"
    if (found := len(pixels.classes)) != (known := len(card.train)):
        yield f"{card.name} has {found} classes, but the official set has {known}"
        return
    for part, each, count in zip(("train", "test"), (card.train, card.test), counts, strict=True):
        if len(wrong := np.flatnonzero(count != np.array(each))):
            k = wrong[0]
            yield (
                f"{card.name} has {count[k]} {part} images of class {pixels.classes[k]}, "
                f"but the official set has {each[k]} ({len(wrong)} classes differ)"
            )
