"""Tiny image sets in the official formats, and what is asked of those that are loaded."""

from __future__ import annotations

import gzip
import io
import lzma
import struct
import tarfile
import zipfile
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from undrift.data.images import load_images

TEN = ["airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck"]
IDX = (
    "train-images-idx3-ubyte",
    "train-labels-idx1-ubyte",
    "t10k-images-idx3-ubyte",
    "t10k-labels-idx1-ubyte",
)
LONG = np.cumsum([0] * 10 + [1])
"""Offsets of ten images of which all but the last are empty."""


def rng():
    return np.random.default_rng(7)


def noise(n, *shape):
    return rng().integers(0, 256, (n, *shape), dtype=np.uint8)


def smooth(n, side):
    """RGB images that survive JPEG: flat colours."""
    colours = rng().integers(0, 256, (n, 3, 1, 1), dtype=np.uint8)
    return np.broadcast_to(colours, (n, 3, side, side)).copy()


def encoded(image, kind="JPEG"):
    """The file of one ``[C, H, W]`` image."""
    out = io.BytesIO()
    plane = image[0] if len(image) == 1 else image.transpose(1, 2, 0)
    Image.fromarray(plane).save(
        out, kind, **({"quality": 95, "subsampling": 0} if kind == "JPEG" else {})
    )
    return out.getvalue()


def member(name, kind=tarfile.REGTYPE, target=""):
    entry = tarfile.TarInfo(name)
    entry.type, entry.linkname = kind, target
    return entry


def write_tar(path: Path, files, extra=(), mode="w:gz"):
    with tarfile.open(path, mode) as archive:
        for name, content in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
        for member in extra:
            archive.addfile(member)


def cifar10_files(images, labels):
    """Two images per train batch and two test images."""
    rows = [bytes([label]) + image.tobytes() for image, label in zip(images, labels, strict=True)]
    folder = "cifar-10-batches-bin"
    files = {
        f"{folder}/data_batch_{k + 1}.bin": b"".join(rows[2 * k : 2 * k + 2]) for k in range(5)
    }
    files[f"{folder}/test_batch.bin"] = b"".join(rows[10:])
    files[f"{folder}/batches.meta.txt"] = ("\n".join(TEN) + "\n\n").encode()
    return files


def write_cifar10(folder: Path, **changes):
    images, labels = noise(12, 3, 32, 32), np.arange(12) % 10
    files = cifar10_files(images, labels)
    files.update(
        {
            f"cifar-10-batches-bin/{name}": content
            for name, content in changes.pop("files", {}).items()
        }
    )
    write_tar(
        folder / "cifar-10-binary.tar.gz",
        {k: v for k, v in files.items() if v is not None},
        **changes,
    )
    return images, labels


def write_cifar100(folder: Path):
    images, labels = noise(8, 3, 32, 32), np.array([0, 99, 5, 7, 1, 2, 3, 98])
    rows = [
        bytes([label // 5, label]) + image.tobytes()
        for image, label in zip(images, labels, strict=True)
    ]
    files = {
        "cifar-100-binary/train.bin": b"".join(rows[:5]),
        "cifar-100-binary/test.bin": b"".join(rows[5:]),
        "cifar-100-binary/fine_label_names.txt": "\n".join(
            f"fine_{k}" for k in range(100)
        ).encode(),
        "cifar-100-binary/coarse_label_names.txt": b"coarse",
    }
    write_tar(folder / "cifar-100-binary.tar.gz", files)
    return images, labels


def idx(array):
    return struct.pack(f">BBBB{array.ndim}I", 0, 0, 8, array.ndim, *array.shape) + array.tobytes()


def mnist_files():
    images, labels = noise(9, 28, 28), (np.arange(9) % 10).astype(np.uint8)
    return (
        images,
        labels,
        dict(zip(IDX, map(idx, (images[:6], labels[:6], images[6:], labels[6:])), strict=True)),
    )


def write_mnist(folder: Path, how="gz", **changes):
    images, labels, files = mnist_files()
    files.update(changes)
    if how == "tar":
        write_tar(folder / "mnist.tar.xz", files, mode="w:xz")
    for name, content in files.items():
        if how == "gz":
            (folder / f"{name}.gz").write_bytes(gzip.compress(content))
        if how == "raw":
            (folder / name).write_bytes(content)
    return images, labels


def tiny_files(images):
    """Six train images of two classes, three val images of b, a, b; wnids.txt is unsorted."""
    root = "tiny-imagenet-200"
    files = {f"{root}/wnids.txt": b"n02\nn01\n", f"{root}/words.txt": b"n01\tone\n"}
    for k, image in enumerate(images[:6]):
        name = ("n01", "n02")[k // 3]
        files[f"{root}/train/{name}/images/{name}_{k % 3}.JPEG"] = encoded(image)
        files[f"{root}/train/{name}/{name}_boxes.txt"] = b"ignored"
    for k, image in enumerate(images[6:]):
        files[f"{root}/val/images/val_{k}.JPEG"] = encoded(image)
    lines = [f"val_{k}.JPEG\t{name}\t0\t0\t9\t9\n" for k, name in enumerate(("n02", "n01", "n02"))]
    files[f"{root}/val/val_annotations.txt"] = "".join(lines).encode()
    files[f"{root}/test/images/test_0.JPEG"] = b"not labelled, not read"
    return files


def write_tiny(folder: Path, **changes):
    images = smooth(9, 64)
    with zipfile.ZipFile(folder / "tiny-imagenet-200.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in {**tiny_files(images), **changes.get("files", {})}.items():
            archive.writestr(name, content)
    return images


def write_pack(folder: Path, **changes):
    images, labels = smooth(10, 32), np.array([1, 0, 2, 1, 0, 2, 1, 0, 2, 1])
    blobs = [encoded(image) for image in images]
    arrays = {
        "jpeg": np.frombuffer(b"".join(blobs), np.uint8),
        "offset": np.cumsum([0, *map(len, blobs)]),
        "label": labels.astype(np.uint8),
        "split": np.array([0, 0, 0, 1, 0, 0, 1, 0, 1, 0], np.uint8),
        "classes": np.array(["ape", "bee", "cow"]),
        **changes,
    }
    out = io.BytesIO()
    np.savez(out, **{k: v for k, v in arrays.items() if v is not None})
    path = folder / "cifar10.npz.xz"
    path.write_bytes(lzma.compress(out.getvalue(), preset=0))
    return path, images, labels, arrays["split"]


def write_folder(root: Path, image=None, kind="png"):
    """Two train images and one test image of each of two classes."""
    images = noise(6, 3, 8, 8) if image is None else image
    names = ["train/ant/a", "train/ant/b", "train/bat/a", "train/bat/b", "test/ant/a", "test/bat/a"]
    for pixels, name in zip(images, names, strict=True):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / f"{name}.{kind}").write_bytes(encoded(pixels, {"png": "PNG", "jpg": "JPEG"}[kind]))
    return images


def is_set(loaded, images, labels, cut, tolerance=0):
    assert loaded.images.dtype == torch.uint8 and loaded.labels.dtype == torch.int64
    assert loaded.images.is_contiguous() and loaded.test_images.is_contiguous()
    got = torch.cat([loaded.images, loaded.test_images]).numpy().astype(int)
    assert got.shape == images.shape and len(loaded.images) == cut
    assert abs(got - images).max() <= tolerance
    assert [*loaded.labels.tolist(), *loaded.test_labels.tolist()] == list(labels)


def complaint(name, folder):
    """What load_images says: one sentence, one line."""
    with pytest.raises(ValueError) as caught:
        load_images(name, folder)
    message = str(caught.value)
    assert "\n" not in message and "object at 0x" not in message
    return message
