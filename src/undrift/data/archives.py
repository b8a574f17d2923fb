"""Files of images, read in place: official archives, packs, and folders.

CIFAR (binary version), MNIST (idx files) and Tiny-ImageNet-200 (zip of JPEG) are as published.
"""

from __future__ import annotations

import io
import math
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from zipfile import ZipFile

import numpy as np

from undrift._files import read_plain
from undrift.data.files import BadData, reading, swelling, tar_files, unpacking, whole, zip_archive
from undrift.data.pixels import Bytes, Labels, Pixels, decode

NOTE = "JPEG q80"
_IMAGE = (3, 32, 32)
_IDX = (
    "train-images-idx3-ubyte",
    "train-labels-idx1-ubyte",
    "t10k-images-idx3-ubyte",
    "t10k-labels-idx1-ubyte",
)
_TINY = "tiny-imagenet-200"
_PACKED = ("jpeg", "offset", "label", "split", "classes")
_SUFFIXES = {".png", ".jpg", ".jpeg"}
LARGE = 1 << 28
"""Bytes that no image file has."""


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


def pack(path: Path) -> Pixels:
    """xz of a NumPy archive whose images are JPEG files laid end to end.

    Image k is bytes ``offset[k]`` to ``offset[k + 1]`` of ``jpeg``; ``split`` is 1 for test.
    """
    with reading(path), unpacking(path) as file:
        content = io.BytesIO(whole(file, path))
        swelling(path, sum(entry.file_size for entry in ZipFile(content).infolist()))
        arrays = np.load(content, allow_pickle=False)
        jpeg, offset, label, split, classes = (arrays[name] for name in _PACKED)
    sound = (
        {(a.ndim, a.dtype.kind in "iu") for a in (jpeg, offset, label, split)} == {(1, True)}
        and jpeg.dtype == np.uint8
        and (classes.ndim, classes.dtype.kind in "US") == (1, True)
        and len(offset) == len(label) + 1 == len(split) + 1
    )
    ends = offset.tolist()
    if not sound or ends != sorted(ends) or (ends[0], ends[-1]) != (0, len(jpeg)):
        raise BadData(
            f"{path}: jpeg must be bytes, offset rise from 0 to their number, label and split be "
            "whole numbers one fewer, and classes names; make it again"
        )

    def part(number: int) -> tuple[Bytes, Labels]:
        mine = np.flatnonzero(split == number)
        images = decode(
            mine.tolist(),
            lambda k: jpeg[ends[k] : ends[k + 1]].tobytes(),
            lambda k: f"{path}: image {k}",
            "RGB",
        )
        return images, label[mine].astype(np.int64)

    return Pixels(*part(0), *part(1), tuple(map(str, classes)), NOTE)


def image_folder(root: Path) -> Pixels:
    """``train/CLASS/*`` and ``test/CLASS/*``, PNG or JPEG.

    Classes are the sub-folders of train, sorted. Grey if every image is, else RGB.
    """
    classes = _folders(root / "train")
    if strange := sorted(set(_folders(root / "test")) - set(classes)):
        raise BadData(
            f"{root / 'test' / strange[0]} is a class that {root / 'train'} lacks; "
            "remove or rename it"
        )
    train, test = _files(root / "train", classes), _files(root / "test", classes)
    mode = "L" if all(_grey(path) for path, _ in train + test) else "RGB"
    return Pixels(*_decoded(train, mode), *_decoded(test, mode), tuple(classes))


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


def _idx(source: Path, name: str, content: bytes) -> Bytes:
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
    members = [member for member, _ in items]
    images = decode(members, archive.read, lambda m: f"{path}: member {m!r}", "RGB")
    return images, np.array([number[name] for _, name in items], np.int64)


def _folders(part: Path) -> list[str]:
    if not part.is_dir():
        raise BadData(f"{part} does not exist; an image folder has train/CLASS/ and test/CLASS/")
    return sorted(
        path.name for path in part.iterdir() if path.is_dir() and not path.name.startswith(".")
    )


def _files(part: Path, classes: Sequence[str]) -> list[tuple[Path, int]]:
    folders = ((k, part / name) for k, name in enumerate(classes) if (part / name).is_dir())
    return [
        (path, k)
        for k, folder in folders
        for path in sorted(folder.iterdir())
        if path.suffix.lower() in _SUFFIXES and not path.name.startswith(".")
    ]


def _grey(path: Path) -> bool:
    from PIL import Image

    try:
        with Image.open(path, formats=("JPEG", "PNG")) as image:
            return image.mode in ("1", "L")
    except Exception:  # the decoder will name it
        return True


def _decoded(items: Sequence[tuple[Path, int]], mode: str) -> tuple[Bytes, Labels]:
    images = decode([p for p, _ in items], lambda path: read_plain(path, LARGE), str, mode)
    return images, np.array([label for _, label in items], np.int64)
