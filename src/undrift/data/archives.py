"""The official archives, read in place.

CIFAR (binary version), MNIST (idx files) and Tiny-ImageNet-200 (zip of JPEG).
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from zipfile import ZipFile

import numpy as np
from numpy.typing import NDArray

from undrift.data.files import BadData, reading, tar_files, unpacking, whole, zip_archive
from undrift.data.pixels import Bytes, Labels, Pixels, decode

_IMAGE = (3, 32, 32)
_IDX = (
    "train-images-idx3-ubyte",
    "train-labels-idx1-ubyte",
    "t10k-images-idx3-ubyte",
    "t10k-labels-idx1-ubyte",
)
_TINY = "tiny-imagenet-200"


def cifar10(path: Path) -> Pixels:
    """cifar-10-binary.tar.gz: records of a label and 3072 pixels."""
    train = [f"data_batch_{k}.bin" for k in range(1, 6)]
    return _cifar(path, "batches.meta.txt", train, "test_batch.bin", heads=1)


def cifar100(path: Path) -> Pixels:
    """cifar-100-binary.tar.gz: records of a coarse label, a fine one (used) and 3072 pixels."""
    return _cifar(path, "fine_label_names.txt", ["train.bin"], "test.bin", heads=2)


def mnist(path: Path) -> Pixels:
    """The four idx files beside ``path``, each plain or gzipped."""
    files = {}
    for name, file in zip(_IDX, idx_files(path.parent), strict=True):
        with reading(file), unpacking(file) as content:
            files[name] = whole(content, file)
    return _mnist(path.parent, files)


def mnist_tar(path: Path) -> Pixels:
    """A tar archive, compressed in any way, of the four idx files."""
    return _mnist(path, tar_files(path, _IDX))


def idx_files(folder: Path) -> list[Path]:
    """Where the four idx files of ``folder`` are."""
    found = [
        next(filter(Path.is_file, (folder / f"{name}.gz", folder / name)), None) for name in _IDX
    ]
    if missing := [name for name, path in zip(_IDX, found, strict=True) if path is None]:
        raise BadData(f"{folder} lacks {', '.join(missing)} (plain or .gz); fetch mnist again")
    return [path for path in found if path]


def tiny_imagenet(path: Path) -> Pixels:
    """tiny-imagenet-200.zip: the classes sorted; the labelled val images are the test set."""
    with zip_archive(path) as archive:
        classes = sorted(archive.read(f"{_TINY}/wnids.txt").decode().split())
        pattern = rf"{_TINY}/train/([^/]+)/images/[^/]+\.JPEG"
        kept = (re.fullmatch(pattern, name) for name in archive.namelist())
        train = sorted((match[0], match[1]) for match in kept if match)
        lines = archive.read(f"{_TINY}/val/val_annotations.txt").decode().splitlines()
        rows = (line.split("\t") for line in lines if line)
        test = [(f"{_TINY}/val/images/{file}", name) for file, name, *_ in rows]
        return Pixels(
            *_labelled(path, archive, train, classes),
            *_labelled(path, archive, test, classes),
            tuple(classes),
        )


def _cifar(path: Path, names: str, train: Sequence[str], test: str, heads: int) -> Pixels:
    files = tar_files(path, [names, *train, test])
    with reading(path):
        classes = tuple(files[names].decode().split())
    return Pixels(
        *_records(path, files, train, heads), *_records(path, files, [test], heads), classes
    )


def _records(
    path: Path, files: Mapping[str, bytes], names: Sequence[str], heads: int
) -> tuple[Bytes, Labels]:
    width = heads + math.prod(_IMAGE)
    for name in names:
        if len(files[name]) % width:
            raise BadData(
                f"{path}: member {name!r} has {len(files[name])} bytes, which is not a whole "
                f"number of images of {width} bytes; fetch it again"
            )
    rows = np.concatenate([np.frombuffer(files[name], np.uint8) for name in names])
    rows = rows.reshape(-1, width)
    images = np.ascontiguousarray(rows[:, heads:]).reshape(-1, *_IMAGE)
    return images, rows[:, heads - 1].astype(np.int64)


def _mnist(source: Path, files: Mapping[str, bytes]) -> Pixels:
    images, labels, test_images, test_labels = (_idx(source, name, files[name]) for name in _IDX)
    return Pixels(
        images[:, None],
        labels.astype(np.int64),
        test_images[:, None],
        test_labels.astype(np.int64),
        tuple("0123456789"),
    )


def _idx(source: Path, name: str, content: bytes) -> NDArray[np.uint8]:
    """Bytes: 0 0 8, the number of axes, their lengths as big-endian words, the items."""
    axes = 3 if "idx3" in name else 1
    start = 4 + 4 * axes
    if len(content) < start or content[:4] != bytes([0, 0, 8, axes]):
        raise BadData(
            f"{source}: {name} does not start as an idx file of {axes} axes; fetch it again"
        )
    shape = np.frombuffer(content[4:start], ">u4").tolist()
    if len(content) - start != math.prod(shape):
        size = " x ".join(map(str, shape))
        raise BadData(
            f"{source}: {name} announces {size} bytes but has {len(content) - start}; "
            "fetch it again"
        )
    return np.frombuffer(content, np.uint8, offset=start).reshape(shape).copy()


def _labelled(
    path: Path, archive: ZipFile, items: Sequence[tuple[str, str]], classes: Sequence[str]
) -> tuple[Bytes, Labels]:
    """Images and labels of (member, class) pairs."""
    number = {name: k for k, name in enumerate(classes)}
    for member, name in items:
        if name not in number:
            raise BadData(
                f"{path}: member {member!r} has class {name!r}, which wnids.txt lacks; "
                "fetch it again"
            )
    members = [member for member, _ in items]
    images = decode(members, archive.read, lambda m: f"{path}: member {m!r}", "RGB")
    return images, np.array([number[name] for _, name in items], np.int64)
