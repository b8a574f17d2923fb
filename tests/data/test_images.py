"""Image sets: every format read back, every damage named."""

import dataclasses
import gzip
import io
import os
import shutil
import stat
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from tests.data.image_files import (
    IDX,
    TEN,
    encoded,
    idx,
    member,
    noise,
    smooth,
    write_cifar10,
    write_cifar100,
    write_folder,
    write_mnist,
    write_pack,
    write_tiny,
)

from undrift.data.cards import CARDS
from undrift.data.files import digest
from undrift.data.images import BadData, info, load_images, verify


@pytest.fixture(autouse=True)
def own_cache(tmp_path_factory, monkeypatch):
    folder = tmp_path_factory.mktemp("cache")
    monkeypatch.setenv("UNDRIFT_CACHE", str(folder))
    yield
    shutil.rmtree(folder)  # entries of real sets are large


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


@pytest.mark.parametrize("file", ["cifar-10-python.tar.gz", "cifar-10-batches-py"])
def test_pickled_cifar_is_refused(tmp_path, file):
    (tmp_path / file).touch()
    assert f"{file} is pickled, so it is never opened; fetch the binary version" in complaint("cifar10", tmp_path)


@pytest.mark.parametrize(
    ("files", "words"),
    [
        ({"data_batch_3.bin": bytes(3072)}, "'data_batch_3.bin' has 3072 bytes, which is not a whole number of images"),
        ({"test_batch.bin": None}, "lacks test_batch.bin"),
        ({"data_batch_2.bin": None, "batches.meta.txt": None}, "lacks batches.meta.txt, data_batch_2.bin"),
        ({"test_batch.bin": bytes([10]) + bytes(3072)}, "test image 0 has label 10, which is not one of 0 to 9"),
        ({"test_batch.bin": b""}, "has no test images"),
        ({"batches.meta.txt": b"\xff\xfe"}, "cannot be read"),
    ],
)
def test_bad_cifar(tmp_path, files, words):
    write_cifar10(tmp_path, files=files)
    assert words in complaint("cifar10", tmp_path)


@pytest.mark.parametrize("name", ["../evil", "a/../../evil", "/etc/evil", "..\\evil", "C:\\evil"])
def test_tar_members_that_leave_are_refused(tmp_path, name):
    write_cifar10(tmp_path, extra=[member(name)])
    assert f"member {name!r} leaves the archive" in complaint("cifar10", tmp_path)


@pytest.mark.parametrize("kind", [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.CHRTYPE, tarfile.FIFOTYPE])
def test_tar_links_and_devices_are_refused(tmp_path, kind):
    write_cifar10(tmp_path, extra=[member("cifar-10-batches-bin/x", kind, "/etc/passwd")])
    assert "'cifar-10-batches-bin/x' is a link or device" in complaint("cifar10", tmp_path)


@pytest.mark.parametrize("name", ["../evil", "/etc/evil", "a\\..\\..\\evil"])
def test_zip_members_that_leave_are_refused(tmp_path, name):
    write_tiny(tmp_path, files={name: b""})
    assert f"member {name!r} leaves the archive" in complaint("tiny-imagenet", tmp_path)


def test_damaged_zip_members_are_named(tmp_path):
    write_tiny(tmp_path)
    path = tmp_path / "tiny-imagenet-200.zip"
    sound, name = path.read_bytes(), "tiny-imagenet-200/train/n01/images/n01_1.JPEG"
    with zipfile.ZipFile(path) as archive:
        start = archive.getinfo(name).header_offset + 30 + len(name)
    for at in range(start, start + 200, 20):
        path.write_bytes(sound[:at] + bytes([sound[at] ^ 4]) + sound[at + 1 :])
        assert f"member {name!r} cannot be read" in complaint("tiny-imagenet", tmp_path)


def test_zip_links_are_refused(tmp_path):
    write_tiny(tmp_path)
    entry = zipfile.ZipInfo("tiny-imagenet-200/x")
    entry.external_attr = (stat.S_IFLNK | 0o777) << 16
    with zipfile.ZipFile(tmp_path / "tiny-imagenet-200.zip", "a") as archive:
        archive.writestr(entry, "/etc/passwd")
    assert "'tiny-imagenet-200/x' is a link or device" in complaint("tiny-imagenet", tmp_path)


@pytest.mark.parametrize("what", ["cifar-10-binary.tar.gz", "tiny-imagenet-200.zip", "cifar10.npz.xz"])
@pytest.mark.parametrize("content", [b"", b"nothing known", None])
def test_files_that_are_no_archive_or_cut_short(tmp_path, what, content):
    write_tiny(tmp_path) if "tiny" in what else write_pack(tmp_path) if "npz" in what else write_cifar10(tmp_path)
    path = tmp_path / what
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2] if content is None else content)
    message = complaint("tiny-imagenet" if "tiny" in what else "cifar10", tmp_path)
    assert message.startswith(str(path)) and message.endswith("fetch it again")


@pytest.mark.parametrize(
    ("file", "content", "words"),
    [
        (IDX[0], b"\0\0\x08\x01" + bytes(12), "train-images-idx3-ubyte does not start as an idx file of 3 axes"),
        (IDX[1], b"", "train-labels-idx1-ubyte does not start as an idx file of 1 axes"),
        (IDX[2], idx(noise(3, 28, 28))[:-1], "t10k-images-idx3-ubyte announces 3 x 28 x 28 bytes but has 2351"),
        (IDX[2], idx(noise(3, 27, 28)), "train images of shape (1, 28, 28) but test images of shape (1, 27, 28)"),
        (IDX[3], idx(np.zeros(4, np.uint8)), "has 3 test images but 4 test labels"),
        (IDX[3], idx(np.array([0, 1, 17], np.uint8)), "test image 2 has label 17, which is not one of 0 to 9"),
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
        ("train/n02/images/n02_1.JPEG", b"no image", "n02_1.JPEG' is not a readable image (neither JPEG nor PNG)"),
        ("val/images/val_1.JPEG", encoded(smooth(1, 64)[0])[:400], "val_1.JPEG' is not a readable image"),
        ("val/images/val_2.JPEG", encoded(smooth(1, 32)[0]), "val_2.JPEG' is 32 x 32 but"),
        ("val/val_annotations.txt", b"val_9.JPEG\tn01\n", "val_9.JPEG' is not a readable image"),
        ("val/val_annotations.txt", b"val_0.JPEG\tn03\n", "val_0.JPEG' has class 'n03', which wnids.txt lacks"),
        ("val/val_annotations.txt", b"val_0.JPEG\n", "cannot be read"),
        ("val/val_annotations.txt", b"", "has no test images"),
    ],
)
def test_bad_tiny_imagenet(tmp_path, file, content, words):
    write_tiny(tmp_path, files={f"tiny-imagenet-200/{file}": content})
    assert words in complaint("tiny-imagenet", tmp_path)
    assert not list(Path(os.environ["UNDRIFT_CACHE"]).iterdir())


def test_members_too_large_to_be_true(tmp_path, monkeypatch):
    monkeypatch.setattr("undrift.data.files.LARGEST", 1 << 12)
    for name, write in {"cifar10": write_cifar10, "mnist": write_mnist, "tiny-imagenet": write_tiny}.items():
        write(tmp_path)
        if name == "tiny-imagenet":
            write(tmp_path, files={"big": bytes(1 << 13)})
        assert "unpacks to more than" in complaint(name, tmp_path)


# packs


def in_order(pixels, labels, split):
    order = np.argsort(split, kind="stable")
    return pixels[order], labels[order]


def test_pack(tmp_path):
    _, images, labels, split = write_pack(tmp_path)
    loaded = load_images("cifar10", tmp_path)
    is_set(loaded, *in_order(images, labels, split), 7, tolerance=3)
    assert (loaded.classes, loaded.note) == (("ape", "bee", "cow"), "JPEG q80")


LONG = np.cumsum([0] * 10 + [1])


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"label": None}, "cannot be read ('label is not a file in the archive')"),
        ({"classes": np.array(["a", 1], object)}, "cannot be read (Object arrays cannot be loaded"),
        ({"split": np.full(10, 2, np.uint8)}, "split must be 0 (train) or 1 (test)"),
        ({"split": np.zeros(10, np.uint8)}, "has no test images"),
        ({"split": np.zeros(9, np.uint8)}, "10 labels, 9 splits and 11 offsets do not go together"),
        ({"offset": LONG}, "offset must rise from 0 to"),
        ({"offset": LONG.astype(float)}, "lists of whole numbers"),
        ({"jpeg": np.zeros(4, np.int64)}, "jpeg must be a list of bytes"),
        ({"label": np.full(10, 3, np.uint8)}, "train image 0 has label 3, which is not one of 0 to 2"),
        ({"jpeg": np.zeros(1, np.uint8), "offset": LONG}, "image 0 is not a readable image (neither JPEG nor PNG)"),
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
    assert "holds one array" in complaint("cifar10", tmp_path)


# cache


def entries():
    return sorted(Path(os.environ["UNDRIFT_CACHE"]).glob("**/*"))


@pytest.fixture
def decodes(monkeypatch):
    """Counts the images decoded."""
    import undrift.data.packed as packed

    count, decode = [], packed.decode
    monkeypatch.setattr(packed, "decode", lambda items, *rest: count.extend(items) or decode(items, *rest))
    return count


def test_second_load_decodes_nothing(tmp_path, decodes):
    path, *_ = write_pack(tmp_path)
    first, second = load_images("cifar10", tmp_path), load_images("cifar10", tmp_path)
    assert len(decodes) == 10
    assert torch.equal(first.images, second.images) and torch.equal(first.test_labels, second.test_labels)
    assert (first.classes, first.note) == (second.classes, second.note)
    (entry,) = entries()
    assert digest(path) in entry.name


def test_other_source_is_another_entry(tmp_path, decodes):
    write_pack(tmp_path)
    load_images("cifar10", tmp_path)
    write_pack(tmp_path, classes=np.array(["x", "y", "z"]))
    assert load_images("cifar10", tmp_path).classes == ("x", "y", "z")
    assert len(entries()) == 2 and len(decodes) == 20


def test_damaged_entries_are_made_again(tmp_path, decodes):
    write_pack(tmp_path)
    first = load_images("cifar10", tmp_path)
    (entry,) = entries()
    sound = entry.read_bytes()
    random = np.random.default_rng(0)
    cuts = [sound[:k] for k in (0, 7, 300, len(sound) - 1)]
    flips = []
    for at in [*range(8), *random.integers(len(sound), size=40).tolist()]:
        flips.append(sound[:at] + bytes([sound[at] ^ 1 << random.integers(8)]) + sound[at + 1 :])
    for content in [*cuts, *flips, sound + b"more"]:
        entry.write_bytes(content)
        decodes.clear()
        again = load_images("cifar10", tmp_path)
        assert len(decodes) == 10
        assert torch.equal(first.images, again.images) and torch.equal(first.labels, again.labels)
        assert (first.classes, first.note) == (again.classes, again.note)
        load_images("cifar10", tmp_path)
        assert len(decodes) == 10 and entries() == [entry]


def test_failed_decoding_leaves_no_entry(tmp_path):
    write_pack(tmp_path, jpeg=np.zeros(1, np.uint8), offset=LONG)
    complaint("cifar10", tmp_path)
    assert entries() == []


def test_failed_write_leaves_no_entry_and_still_loads(tmp_path, monkeypatch):
    def full(_):
        raise OSError(28, "No space left on device")

    write_pack(tmp_path)
    monkeypatch.setattr("undrift.core.files.os.fsync", full)
    with pytest.warns(UserWarning, match="could not be kept in .* No space left"):
        assert len(load_images("cifar10", tmp_path).images) == 7
    assert entries() == []


def test_cache_folder_that_is_a_file(tmp_path, monkeypatch):
    write_pack(tmp_path)
    monkeypatch.setenv("UNDRIFT_CACHE", str(tmp_path / "cifar10.npz.xz"))
    with pytest.warns(UserWarning, match="could not be kept"):
        assert len(load_images("cifar10", tmp_path).images) == 7


def test_cache_folder_without_platformdirs(monkeypatch, tmp_path):
    from undrift.data.files import cache_folder

    monkeypatch.delenv("UNDRIFT_CACHE")
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setitem(sys.modules, "platformdirs", None)
    assert cache_folder() == tmp_path / ".cache" / "undrift"


# image folders


@pytest.mark.parametrize("kind", ["png", "jpg"])
def test_image_folder(tmp_path, kind):
    images = write_folder(tmp_path / "pets", smooth(6, 8), kind)
    (tmp_path / "pets/train/ant/notes.txt").write_text("ignored")
    (tmp_path / "pets/train/.hidden").mkdir()
    loaded = load_images("pets", tmp_path)
    is_set(loaded, images, [0, 0, 1, 1, 0, 1], 4, tolerance=0 if kind == "png" else 3)
    assert (loaded.classes, loaded.name) == (("ant", "bat"), "pets")


def test_grey_folder_has_one_channel(tmp_path):
    images = write_folder(tmp_path / "pets", noise(6, 1, 8, 8))
    is_set(load_images("pets", tmp_path), images, [0, 0, 1, 1, 0, 1], 4)


def test_one_coloured_image_makes_all_rgb(tmp_path):
    images = write_folder(tmp_path / "pets", noise(6, 1, 8, 8))
    (tmp_path / "pets/test/bat/a.png").write_bytes(encoded(noise(1, 3, 8, 8)[0], "PNG"))
    loaded = load_images("pets", tmp_path)
    assert loaded.images.shape == (4, 3, 8, 8)
    assert (loaded.images == torch.from_numpy(images[:4])).all()


def test_known_name_as_image_folder(tmp_path):
    write_folder(tmp_path / "cifar10")
    assert load_images("cifar10", tmp_path).classes == ("ant", "bat")


def deep():
    out = io.BytesIO()
    Image.fromarray(np.zeros((8, 8), np.uint16)).save(out, "PNG")
    return out.getvalue()


@pytest.mark.parametrize(
    ("file", "content", "words"),
    [
        ("train/bat/b.png", encoded(noise(1, 3, 9, 8)[0], "PNG"), "b.png is 8 x 9 but"),
        ("train/bat/b.png", b"", "b.png is not a readable image"),
        ("test/bat/a.png", encoded(noise(1, 3, 8, 8)[0], "PNG")[:60], "a.png is not a readable image"),
        ("test/bat/a.png", deep(), "a.png has pixels of kind I;16; save it with 8 bits per channel"),
        ("test/cow/a.png", encoded(noise(1, 3, 8, 8)[0], "PNG"), "cow is a class that"),
    ],
)
def test_bad_image_folders(tmp_path, file, content, words):
    write_folder(tmp_path / "pets")
    (tmp_path / "pets" / file).parent.mkdir(exist_ok=True)
    (tmp_path / "pets" / file).write_bytes(content)
    assert words in complaint("pets", tmp_path)


def test_image_folder_without_test(tmp_path):
    (tmp_path / "pets/train/ant").mkdir(parents=True)
    assert "test does not exist; an image folder has train/CLASS/ and test/CLASS/" in complaint("pets", tmp_path)
    (tmp_path / "pets/test").mkdir()
    assert "pets has no train images" in complaint("pets", tmp_path)


# damage at random


@pytest.mark.parametrize("name", ["cifar10", "mnist", "tiny-imagenet", "pack", "pets"])
def test_random_damage_is_named_or_harmless(tmp_path, name):
    """Archives have checksums; single images have none, so a damaged one may still be read."""
    writers = {"cifar10": write_cifar10, "mnist": write_mnist, "tiny-imagenet": write_tiny, "pack": write_pack}
    writers.get(name, lambda root: write_folder(root / "pets"))(tmp_path)
    key = "cifar10" if name == "pack" else name
    sure = load_images(key, tmp_path)
    random = np.random.default_rng(1)
    files = [path for path in sorted(tmp_path.rglob("*")) if path.is_file()]
    for _ in range(60):
        path = files[random.integers(len(files))]
        sound = path.read_bytes()
        content = bytearray(sound)
        for at in random.integers(len(content), size=3).tolist():
            content[at] ^= 1 << random.integers(8)
        path.write_bytes(content)
        try:
            loaded = load_images(key, tmp_path)
            assert name == "pets" or torch.equal(loaded.images, sure.images)
        except BadData as error:
            assert "\n" not in str(error)
        path.write_bytes(sound)


# digits, subsets, names


def test_digits_are_embedded():
    from sklearn.datasets import load_digits

    loaded = load_images()
    assert loaded.images.shape == (1437, 1, 8, 8) and loaded.test_images.shape == (360, 1, 8, 8)
    assert loaded.name == "digits" and loaded.images.max() == 255
    values, target = load_digits(return_X_y=True)
    both = torch.cat([loaded.images, loaded.test_images]).reshape(-1, 64).numpy()
    mine = sorted(zip(both.tolist(), torch.cat([loaded.labels, loaded.test_labels]).tolist(), strict=True))
    assert mine == sorted(zip(np.rint(values * 255 / 16).tolist(), target.tolist(), strict=True))
    assert torch.equal(loaded.images, load_images("digits").images)


@pytest.mark.parametrize(("train", "test"), [(100, 50), (17, 3), (1437, 360)])
def test_subsets_are_balanced_and_fixed(train, test):
    loaded, again = load_images(subset=(train, test)), load_images(subset=(train, test))
    assert (len(loaded.images), len(loaded.test_images)) == (train, test)
    assert torch.equal(loaded.images, again.images)
    if train < 1000:
        for labels in (loaded.labels, loaded.test_labels):
            counts = torch.bincount(labels, minlength=10)
            assert counts.max() - counts.min() <= 1


def test_subset_keeps_the_first_of_each_class_in_order():
    loaded, part = load_images(), load_images(subset=(30, 10))
    kept = sorted(k for c in range(10) for k in (loaded.labels == c).nonzero().flatten()[:3].tolist())
    assert torch.equal(part.images, loaded.images[kept]) and torch.equal(part.labels, loaded.labels[kept])


def test_subset_fills_up_from_larger_classes(tmp_path):
    _, _, _, split = write_pack(tmp_path, label=np.array([0, 0, 0, 1, 0, 0, 1, 1, 2, 2], np.uint8))
    assert (split == 0).sum() == 7
    loaded = load_images("cifar10", tmp_path, subset=(6, 2))
    assert loaded.labels.tolist() == [0, 0, 0, 0, 1, 2]


@pytest.mark.parametrize("subset", [(0, 1), (1, 361), (-1, 1), (1438, 1)])
def test_impossible_subsets(subset):
    with pytest.raises(ValueError, match=r"a subset of -?\d+ (train|test) images is not possible; give 1 to"):
        load_images(subset=subset)


def test_unknown_names_get_the_nearest(tmp_path, monkeypatch):
    assert "unknown image set 'cifar-10'; did you mean cifar10?" in complaint("cifar-10", tmp_path)
    monkeypatch.delenv("UNDRIFT_DATA", raising=False)
    assert "unknown image set 'mnits'; did you mean mnist?" in complaint("mnits", None)
    with pytest.raises(ValueError, match="did you mean tiny-imagenet"):
        info("tinyimagenet")


@pytest.mark.parametrize("name", ["", "..", ".", "/", "a/b", "../cifar10"])
def test_names_are_no_paths(tmp_path, name):
    write_folder(tmp_path)
    (tmp_path / "inner").mkdir()
    assert f"unknown image set {name!r}" in complaint(name, tmp_path / "inner")


def test_missing_files_say_what_was_looked_for(tmp_path, monkeypatch):
    words = f"looked for cifar-10-binary.tar.gz, cifar10.npz.xz, cifar10/train in {tmp_path}"
    assert words in complaint("cifar10", tmp_path)
    assert "does not exist" in complaint("cifar10", tmp_path / "absent")
    monkeypatch.delenv("UNDRIFT_DATA", raising=False)
    assert "set UNDRIFT_DATA" in complaint("cifar10", None)


def test_importing_loads_neither_torch_nor_decoders():
    code = "import sys, undrift.data.images, undrift.data.fetch; print({'torch', 'PIL', 'sklearn'} & {*sys.modules})"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout == "set()\n"


# verify


def test_info():
    card = info("cifar10")
    assert sum(card.train) == 50_000 and card.shape == (3, 32, 32)
    assert "https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz  md5 c32a1d4a" in str(card)
    assert {name: (sum(card.train), sum(card.test)) for name, card in CARDS.items()} == {
        "digits": (1437, 360),
        "mnist": (60_000, 10_000),
        "cifar10": (50_000, 10_000),
        "cifar100": (50_000, 10_000),
        "tiny-imagenet": (100_000, 10_000),
    }


def test_verify_says_all_that_differs(tmp_path):
    write_cifar10(tmp_path)
    with pytest.raises(BadData) as caught:
        verify("cifar10", tmp_path)
    md5, train, test = str(caught.value).splitlines()
    assert "but the official file has c32a1d4ab5d03f1284b67883e8d87530" in md5
    assert "cifar10 has 1 train images of class airplane, but the official set has 5000 (10 classes differ)" in train
    assert "1 test images" not in train and "test images of class" in test


def test_verify_of_other_shape_and_classes(tmp_path):
    write_folder(tmp_path / "cifar10")
    with pytest.raises(BadData, match=r"shape \(3, 8, 8\).*\n.*has 2 classes, but the official set has 10$"):
        verify("cifar10", tmp_path)


def test_verify_of_sound_sets(tmp_path, monkeypatch):
    write_mnist(tmp_path)
    files = {f"{name}.gz": digest(tmp_path / f"{name}.gz", "md5") for name in IDX}
    counts = {"train": (1,) * 6 + (0,) * 4, "test": (0,) * 6 + (1,) * 3 + (0,)}
    monkeypatch.setitem(CARDS, "mnist", dataclasses.replace(info("mnist"), files=files, **counts))
    found = verify("mnist", tmp_path)
    assert found.shape == (1, 28, 28) and found.train["0"] == 1 and found.test["0"] == 0
    assert found.hashes == {file: digest(tmp_path / file) for file in files}


def test_verify_of_sets_without_files(tmp_path):
    assert sum(verify("digits").train.values()) == 1437
    write_folder(tmp_path / "pets")
    found = verify("pets", tmp_path)
    assert (found.train, found.test, found.hashes) == ({"ant": 2, "bat": 2}, {"ant": 1, "bat": 1}, {})


# the real ones


def real(file):
    return pytest.mark.skipif(
        not os.environ.get("UNDRIFT_DATA") or not Path(os.environ["UNDRIFT_DATA"], file).is_file(),
        reason=f"UNDRIFT_DATA has no {file}",
    )


@real("mnist.tar.xz")
def test_real_mnist():
    found = verify("mnist")
    assert (sum(found.train.values()), sum(found.test.values())) == (60_000, 10_000)
    assert load_images("mnist").images.float().mean() / 255 == pytest.approx(0.1307, abs=1e-4)


@pytest.mark.parametrize(
    ("name", "train", "test"),
    [
        pytest.param("cifar10", 5000, 1000, marks=real("cifar10.npz.xz")),
        pytest.param("cifar100", 500, 100, marks=real("cifar100.npz.xz")),
    ],
)
def test_real_packs(name, train, test, monkeypatch):
    """Counts and a few images: decoding all of them is a slow test."""
    import undrift.data.packed as packed

    decode = packed.decode

    def some(items, *rest):
        return np.concatenate([decode(items[:200], *rest), np.zeros((len(items) - 200, 3, 32, 32), np.uint8)])

    monkeypatch.setattr(packed, "decode", some)
    found = verify(name)
    assert set(found.train.values()) == {train} and set(found.test.values()) == {test}
    assert (found.shape, found.note) == ((3, 32, 32), "JPEG q80")
    images = load_images(name).images[:200].float()
    assert 90 < images.mean() < 150 and images.std(dim=0).min() > 10


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "mean", "std"),
    [
        pytest.param("cifar10", [0.4914, 0.4822, 0.4465], [0.2470, 0.2435, 0.2616], marks=real("cifar10.npz.xz")),
        pytest.param("cifar100", [0.5071, 0.4867, 0.4408], [0.2675, 0.2565, 0.2761], marks=real("cifar100.npz.xz")),
    ],
)
def test_real_pixels_have_the_published_statistics(name, mean, std):
    verify(name)
    images = load_images(name).images.double() / 255
    assert images.mean((0, 2, 3)).tolist() == pytest.approx(mean, abs=2e-3)
    assert images.std((0, 2, 3)).tolist() == pytest.approx(std, abs=4e-3)
