"""Official archives and packs: what they hold is loaded, and what is wrong with them is said."""

import gzip
import io
import lzma
import os
import tarfile
import tracemalloc
from pathlib import Path

import numpy as np
import pytest
from tests.data.image_files import (
    IDX,
    LONG,
    TEN,
    complaint,
    encoded,
    idx,
    is_set,
    noise,
    smooth,
    write_cifar10,
    write_cifar100,
    write_mnist,
    write_pack,
    write_tiny,
)

from undrift.data import archives, tables
from undrift.data.files import BadData, unpacking, whole
from undrift.data.images import load_images

pytestmark = pytest.mark.usefixtures("own_cache")
TINY = "tiny-imagenet-200"
NOTES = f"{TINY}/val/val_annotations.txt"


# official archives


def test_cifar10(tmp_path):
    images, labels = write_cifar10(tmp_path)
    loaded = load_images("cifar10", tmp_path)
    is_set(loaded, images, labels, 10)
    assert (loaded.classes, loaded.name, loaded.note) == (tuple(TEN), "cifar10", "")


def test_cifar100_uses_fine_labels(tmp_path):
    images, labels = write_cifar100(tmp_path)
    loaded = load_images("cifar100", tmp_path)
    is_set(loaded, images, labels, 5)
    assert len(loaded.classes) == 100 and loaded.classes[99] == "fine_99"


@pytest.mark.parametrize("how", ["gz", "raw", "tar"])
def test_mnist(tmp_path, how):
    images, labels = write_mnist(tmp_path, how)
    loaded = load_images("mnist", tmp_path)
    is_set(loaded, images[:, None], labels, 6)
    assert loaded.classes == tuple("0123456789")


def test_tiny_imagenet(tmp_path):
    grey = np.full((1, 64, 64), 77, np.uint8)
    images = write_tiny(tmp_path, files={"tiny-imagenet-200/val/images/val_1.JPEG": encoded(grey)})
    images[7] = 77
    loaded = load_images("tiny-imagenet", tmp_path)
    is_set(loaded, images, [0, 0, 0, 1, 1, 1, 1, 0, 1], 6, tolerance=3)
    assert loaded.classes == ("n01", "n02")


def test_folder_from_the_environment(tmp_path, monkeypatch):
    write_mnist(tmp_path)
    monkeypatch.setenv("UNDRIFT_DATA", str(tmp_path))
    assert len(load_images("mnist").images) == 6


def test_lossless_archive_wins_over_pack(tmp_path):
    images, labels = write_cifar10(tmp_path)
    write_pack(tmp_path)
    is_set(load_images("cifar10", tmp_path), images, labels, 10)


# packs


def in_order(pixels, labels, split):
    order = np.argsort(split, kind="stable")
    return pixels[order], labels[order]


def test_pack(tmp_path):
    _, images, labels, split = write_pack(tmp_path)
    loaded = load_images("cifar10", tmp_path)
    is_set(loaded, *in_order(images, labels, split), 7, tolerance=3)
    assert (loaded.classes, loaded.note) == (("ape", "bee", "cow"), "JPEG q80")


# what is wrong with them

BAD = {
    "cifar, half an image": (write_cifar10, {"files": {"data_batch_3.bin": bytes(3072)}}),
    "cifar, no test batch": (write_cifar10, {"files": {"test_batch.bin": None}}),
    "cifar, no test images": (write_cifar10, {"files": {"test_batch.bin": b""}}),
    "cifar, label 10": (write_cifar10, {"files": {"test_batch.bin": bytes([10]) + bytes(3072)}}),
    "cifar, names": (write_cifar10, {"files": {"batches.meta.txt": b"\xff\xfe"}}),
    "mnist, axes": (write_mnist, {IDX[0]: b"\0\0\x08\x01" + bytes(12)}),
    "mnist, nothing": (write_mnist, {IDX[1]: b""}),
    "mnist, cut short": (write_mnist, {IDX[2]: idx(noise(3, 28, 28))[:-1]}),
    "mnist, another shape": (write_mnist, {IDX[2]: idx(noise(3, 27, 28))}),
    "mnist, labels without images": (write_mnist, {IDX[3]: idx(np.zeros(4, np.uint8))}),
    "mnist, label 17": (write_mnist, {IDX[3]: idx(np.array([0, 1, 17], np.uint8))}),
    "tiny, no image": (write_tiny, {"files": {f"{TINY}/train/n02/images/n02_1.JPEG": b"no image"}}),
    "tiny, half a file": (
        write_tiny,
        {"files": {f"{TINY}/val/images/val_1.JPEG": encoded(smooth(1, 64)[0])[:400]}},
    ),
    "tiny, another shape": (
        write_tiny,
        {"files": {f"{TINY}/val/images/val_2.JPEG": encoded(smooth(1, 32)[0])}},
    ),
    "tiny, an image that is not there": (write_tiny, {"files": {NOTES: b"val_9.JPEG\tn01\n"}}),
    "tiny, a class that is not there": (write_tiny, {"files": {NOTES: b"val_0.JPEG\tn03\n"}}),
    "tiny, no test images": (write_tiny, {"files": {NOTES: b""}}),
    "pack, no labels": (write_pack, {"label": None}),
    "pack, objects": (write_pack, {"classes": np.array(["a", 1], object)}),
    "pack, no train images": (write_pack, {"split": np.full(10, 2, np.uint8)}),
    "pack, no test images": (write_pack, {"split": np.zeros(10, np.uint8)}),
    "pack, fewer splits": (write_pack, {"split": np.zeros(9, np.uint8)}),
    "pack, offsets beyond the end": (write_pack, {"offset": LONG}),
    "pack, no bytes": (write_pack, {"jpeg": np.zeros(4, np.int64)}),
    "pack, label 3": (write_pack, {"label": np.full(10, 3, np.uint8)}),
    "pack, no images": (write_pack, {"jpeg": np.zeros(1, np.uint8), "offset": LONG}),
}
SETS = {
    write_cifar10: "cifar10",
    write_mnist: "mnist",
    write_tiny: TINY[:13],
    write_pack: "cifar10",
}


@pytest.mark.parametrize("case", BAD)
def test_bad_content_is_named_and_not_kept(tmp_path, case):
    write, changes = BAD[case]
    write(tmp_path, **changes)
    assert complaint(SETS[write], tmp_path).startswith(str(tmp_path))
    assert not list(Path(os.environ["UNDRIFT_CACHE"]).iterdir())


@pytest.mark.parametrize("write", SETS)
@pytest.mark.parametrize("content", [b"", b"nothing known", None])
def test_files_that_are_no_archive_or_cut_short(tmp_path, write, content):
    write(tmp_path)
    path = sorted(tmp_path.iterdir())[0]
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2] if content is None else content)
    message = complaint(SETS[write], tmp_path)
    assert path.name.removesuffix(".gz") in message and message.endswith("fetch it again")


def test_a_file_that_is_missing_is_named(tmp_path):
    write_mnist(tmp_path)
    (tmp_path / f"{IDX[3]}.gz").unlink()
    assert IDX[3] in complaint("mnist", tmp_path)


# files made to fill the memory


def swollen(open_file, path, start=b""):
    """32 MiB in a file of a few KiB."""
    with open_file(path, "wb") as file:
        file.write(start)
        for _ in range(32):
            file.write(bytes(1 << 20))


def large_member(path):
    one = tarfile.TarInfo("test_batch.bin")
    one.size = 32 << 20
    swollen(gzip.open, path, one.tobuf(tarfile.GNU_FORMAT))


def idx_bytes(path):
    with unpacking(path) as file:
        whole(file, path)


def large_array(path):
    out = io.BytesIO()
    np.savez_compressed(out, jpeg=np.zeros(32 << 20, np.uint8))
    path.write_bytes(lzma.compress(out.getvalue()))


BOMBS = {
    "a pack": ("CIFAR10.npz.xz", lambda path: swollen(lzma.open, path), archives.pack),
    "an array of a pack": ("CIFAR10.npz.xz", large_array, archives.pack),
    "svmlight": (
        "a.xz",
        lambda path: swollen(lzma.open, path),
        lambda path: tables.load("a", path.parent),
    ),
    "idx files": (f"{IDX[0]}.gz", lambda path: swollen(gzip.open, path), idx_bytes),
    "a member": ("cifar.tar.gz", large_member, archives.cifar10),
}


@pytest.mark.parametrize("name, write, read", BOMBS.values(), ids=BOMBS)
def test_a_small_file_takes_little_memory(tmp_path, name, write, read):
    path = tmp_path / name
    write(path)
    assert path.stat().st_size < 1 << 17
    tracemalloc.start()
    with pytest.raises(BadData, match="times its size"):
        read(path)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 24 << 20
