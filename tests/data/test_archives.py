"""Official archives and packs: what they hold is loaded, and what is wrong with them is said."""

import gzip
import io
import lzma
import os
import tarfile
import tracemalloc
import zipfile
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


def test_mnist_of_plain_and_gzipped_files(tmp_path):
    images, labels = write_mnist(tmp_path, "gz")
    packed = tmp_path / f"{IDX[1]}.gz"
    (tmp_path / IDX[1]).write_bytes(gzip.decompress(packed.read_bytes()))
    packed.unlink()
    is_set(load_images("mnist", tmp_path), images[:, None], labels, 6)


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


@pytest.mark.parametrize(
    ("files", "words"),
    [
        (
            {"data_batch_3.bin": bytes(3072)},
            "'data_batch_3.bin' has 3072 bytes, which is not a whole number of images",
        ),
        ({"test_batch.bin": None}, "lacks test_batch.bin"),
        (
            {"data_batch_2.bin": None, "batches.meta.txt": None},
            "lacks batches.meta.txt, data_batch_2.bin",
        ),
        (
            {"test_batch.bin": bytes([10]) + bytes(3072)},
            "test image 0 has label 10, which is not one of 0 to 9",
        ),
        ({"test_batch.bin": b""}, "has 0 test images"),
        ({"batches.meta.txt": b"\xff\xfe"}, "cannot be read"),
    ],
)
def test_bad_cifar(tmp_path, files, words):
    write_cifar10(tmp_path, files=files)
    assert words in complaint("cifar10", tmp_path)


def test_damaged_zip_members_are_named(tmp_path):
    write_tiny(tmp_path)
    path = tmp_path / "tiny-imagenet-200.zip"
    sound, name = path.read_bytes(), "tiny-imagenet-200/train/n01/images/n01_1.JPEG"
    with zipfile.ZipFile(path) as archive:
        start = archive.getinfo(name).header_offset + 30 + len(name)
    for at in range(start, start + 200, 20):
        path.write_bytes(sound[:at] + bytes([sound[at] ^ 4]) + sound[at + 1 :])
        message = complaint("tiny-imagenet", tmp_path)
        assert message.startswith(str(path)) and message.endswith("fetch it again")


@pytest.mark.parametrize(
    "what", ["cifar-10-binary.tar.gz", "tiny-imagenet-200.zip", "cifar10.npz.xz"]
)
@pytest.mark.parametrize("content", [b"", b"nothing known", None])
def test_files_that_are_no_archive_or_cut_short(tmp_path, what, content):
    write_tiny(tmp_path) if "tiny" in what else write_pack(
        tmp_path
    ) if "npz" in what else write_cifar10(tmp_path)
    path = tmp_path / what
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2] if content is None else content)
    message = complaint("tiny-imagenet" if "tiny" in what else "cifar10", tmp_path)
    assert message.startswith(str(path)) and message.endswith("fetch it again")


@pytest.mark.parametrize(
    ("file", "content", "words"),
    [
        (
            IDX[0],
            b"\0\0\x08\x01" + bytes(12),
            "train-images-idx3-ubyte does not start as an idx file of 3 axes",
        ),
        (IDX[1], b"", "train-labels-idx1-ubyte does not start as an idx file of 1 axes"),
        (
            IDX[2],
            idx(noise(3, 28, 28))[:-1],
            "t10k-images-idx3-ubyte announces 3 x 28 x 28 bytes but has 2351",
        ),
        (
            IDX[2],
            idx(noise(3, 27, 28)),
            "train images of shape (1, 28, 28) but test images of shape (1, 27, 28)",
        ),
        (IDX[3], idx(np.zeros(4, np.uint8)), "has 3 test images and 4 test labels"),
        (
            IDX[3],
            idx(np.array([0, 1, 17], np.uint8)),
            "test image 2 has label 17, which is not one of 0 to 9",
        ),
    ],
)
@pytest.mark.parametrize("how", ["gz", "tar"])
def test_bad_mnist(tmp_path, how, file, content, words):
    write_mnist(tmp_path, how, **{file: content})
    assert words in complaint("mnist", tmp_path)


def test_missing_mnist_file(tmp_path):
    write_mnist(tmp_path)
    (tmp_path / f"{IDX[3]}.gz").unlink()
    assert "lacks t10k-labels-idx1-ubyte (plain or .gz)" in complaint("mnist", tmp_path)


def test_gzip_with_a_wrong_checksum(tmp_path):
    write_mnist(tmp_path)
    path = tmp_path / f"{IDX[0]}.gz"
    content = bytearray(path.read_bytes())
    content[-6] ^= 1
    path.write_bytes(content)
    assert f"{path} cannot be read (CRC check failed" in complaint("mnist", tmp_path)


@pytest.mark.parametrize(
    ("file", "content", "words"),
    [
        (
            "train/n02/images/n02_1.JPEG",
            b"no image",
            "n02_1.JPEG' is not a readable JPEG or PNG",
        ),
        (
            "val/images/val_1.JPEG",
            encoded(smooth(1, 64)[0])[:400],
            "val_1.JPEG' is not a readable JPEG or PNG",
        ),
        ("val/images/val_2.JPEG", encoded(smooth(1, 32)[0]), "val_2.JPEG' must"),
        (
            "val/val_annotations.txt",
            b"val_9.JPEG\tn01\n",
            "val_9.JPEG' is not a readable",
        ),
        ("val/val_annotations.txt", b"val_0.JPEG\tn03\n", "cannot be read ('n03')"),
        ("val/val_annotations.txt", b"val_0.JPEG\n", "cannot be read"),
        ("val/val_annotations.txt", b"", "has 0 test images"),
    ],
)
def test_bad_tiny_imagenet(tmp_path, file, content, words):
    write_tiny(tmp_path, files={f"tiny-imagenet-200/{file}": content})
    assert words in complaint("tiny-imagenet", tmp_path)
    assert not list(Path(os.environ["UNDRIFT_CACHE"]).iterdir())


# packs


def in_order(pixels, labels, split):
    order = np.argsort(split, kind="stable")
    return pixels[order], labels[order]


def test_pack(tmp_path):
    _, images, labels, split = write_pack(tmp_path)
    loaded = load_images("cifar10", tmp_path)
    is_set(loaded, *in_order(images, labels, split), 7, tolerance=3)
    assert (loaded.classes, loaded.note) == (("ape", "bee", "cow"), "JPEG q80")


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"label": None}, "label is not a file in the archive"),
        ({"classes": np.array(["a", 1], object)}, "cannot be read (Object arrays cannot be loaded"),
        ({"split": np.full(10, 2, np.uint8)}, "has 0 train images"),
        ({"split": np.zeros(10, np.uint8)}, "has 0 test images"),
        ({"split": np.zeros(9, np.uint8)}, "jpeg must be bytes"),
        ({"offset": LONG}, "jpeg must be bytes"),
        ({"offset": LONG.astype(float)}, "jpeg must be bytes"),
        ({"jpeg": np.zeros(4, np.int64)}, "jpeg must be bytes"),
        (
            {"label": np.full(10, 3, np.uint8)},
            "train image 0 has label 3, which is not one of 0 to 2",
        ),
        (
            {"jpeg": np.zeros(1, np.uint8), "offset": LONG},
            "image 0 is not a readable JPEG or PNG",
        ),
    ],
)
def test_bad_packs(tmp_path, changes, words):
    path, *_ = write_pack(tmp_path, **changes)
    message = complaint("cifar10", tmp_path)
    assert words in message and message.startswith(str(path))


def test_pack_of_one_array(tmp_path):
    import lzma

    out = io.BytesIO()
    np.save(out, np.zeros(3))
    (tmp_path / "cifar10.npz.xz").write_bytes(lzma.compress(out.getvalue()))
    assert "not a zip file" in complaint("cifar10", tmp_path)


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
