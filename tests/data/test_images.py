"""Image sets: the cache of what was decoded, folders of images, subsets, names, the real sets."""

import dataclasses
import io
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from tests.data.image_files import (
    IDX,
    LONG,
    complaint,
    encoded,
    is_set,
    noise,
    smooth,
    write_cifar10,
    write_folder,
    write_mnist,
    write_pack,
    write_tiny,
)

from undrift.data.cards import CARDS
from undrift.data.files import digest
from undrift.data.images import BadData, info, load_images, verify

pytestmark = pytest.mark.usefixtures("own_cache")


# cache


def entries():
    return sorted(Path(os.environ["UNDRIFT_CACHE"]).glob("**/*"))


@pytest.fixture
def decodes(monkeypatch):
    """Counts the images decoded."""
    from undrift.data import archives

    count, decode = [], archives.decode
    monkeypatch.setattr(
        archives, "decode", lambda items, *rest: count.extend(items) or decode(items, *rest)
    )
    return count


def test_second_load_decodes_nothing(tmp_path, decodes):
    path, *_ = write_pack(tmp_path)
    first, second = load_images("cifar10", tmp_path), load_images("cifar10", tmp_path)
    assert len(decodes) == 10
    assert torch.equal(first.images, second.images) and torch.equal(
        first.test_labels, second.test_labels
    )
    assert (first.classes, first.note) == (second.classes, second.note)
    (entry,) = entries()
    assert digest(path) in entry.name


def test_other_source_is_another_entry(tmp_path, decodes):
    write_pack(tmp_path)
    load_images("cifar10", tmp_path)
    write_pack(tmp_path, classes=np.array(["x", "y", "z"]))
    assert load_images("cifar10", tmp_path).classes == ("x", "y", "z")
    assert len(entries()) == 2 and len(decodes) == 20


def test_entries_that_cannot_be_read_are_made_again(tmp_path, decodes):
    write_pack(tmp_path)
    first = load_images("cifar10", tmp_path)
    (entry,) = entries()
    sound = entry.read_bytes()
    cuts = [sound[:k] for k in (0, 7, 300, len(sound) - 1)]
    for content in [*cuts, sound + b"more"]:
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
    monkeypatch.setattr("undrift._files.os.fsync", full)
    with pytest.warns(UserWarning, match="could not be kept in .* No space left"):
        assert len(load_images("cifar10", tmp_path).images) == 7
    assert entries() == []


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


def deep():
    out = io.BytesIO()
    Image.fromarray(np.zeros((8, 8), np.uint16)).save(out, "PNG")
    return out.getvalue()


@pytest.mark.parametrize(
    ("file", "content"),
    [
        ("train/bat/b.png", encoded(noise(1, 3, 9, 8)[0], "PNG")),
        ("train/bat/b.png", b""),
        ("test/bat/a.png", encoded(noise(1, 3, 8, 8)[0], "PNG")[:60]),
        ("test/bat/a.png", deep()),
        ("test/cow/a.png", encoded(noise(1, 3, 8, 8)[0], "PNG")),
    ],
    ids=str.split("shape empty cut deep class"),
)
def test_bad_image_folders(tmp_path, file, content):
    write_folder(tmp_path / "pets")
    (tmp_path / "pets" / file).parent.mkdir(exist_ok=True)
    (tmp_path / "pets" / file).write_bytes(content)
    assert str(Path(file).parent) in complaint("pets", tmp_path)


# damage at random


@pytest.mark.parametrize("name", ["cifar10", "mnist", "tiny-imagenet", "pack", "pets"])
def test_random_damage_is_named_or_harmless(tmp_path, name):
    """Archives have checksums; single images have none, so a damaged one may still be read."""
    writers = {
        "cifar10": write_cifar10,
        "mnist": write_mnist,
        "tiny-imagenet": write_tiny,
        "pack": write_pack,
    }
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
    mine = sorted(
        zip(both.tolist(), torch.cat([loaded.labels, loaded.test_labels]).tolist(), strict=True)
    )
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


def test_subset_fills_up_from_larger_classes(tmp_path):
    _, _, _, split = write_pack(tmp_path, label=np.array([0, 0, 0, 1, 0, 0, 1, 1, 2, 2], np.uint8))
    assert (split == 0).sum() == 7
    loaded = load_images("cifar10", tmp_path, subset=(6, 2))
    assert loaded.labels.tolist() == [0, 0, 0, 0, 1, 2]


@pytest.mark.parametrize("subset", [(0, 1), (1, 361), (-1, 1), (1438, 1)])
def test_impossible_subsets(subset):
    with pytest.raises(
        ValueError, match=r"a subset of -?\d+ (train|test) images is not possible; give 1 to"
    ):
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
    code = (
        "import sys, undrift.data.images, undrift.data.fetch; "
        "print({'torch', 'PIL', 'sklearn'} & {*sys.modules})"
    )
    assert (
        subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout
        == "set()\n"
    )


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
    assert "cifar10 has 1 train images of class airplane" in train
    assert "but the official set has 5000 (10 classes differ)" in train
    assert "1 test images" not in train and "test images of class" in test


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
    assert (found.train, found.test, found.hashes) == (
        {"ant": 2, "bat": 2},
        {"ant": 1, "bat": 1},
        {},
    )


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


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "mean", "std"),
    [
        pytest.param(
            "cifar10",
            [0.4914, 0.4822, 0.4465],
            [0.2470, 0.2435, 0.2616],
            marks=real("cifar10.npz.xz"),
        ),
        pytest.param(
            "cifar100",
            [0.5071, 0.4867, 0.4408],
            [0.2675, 0.2565, 0.2761],
            marks=real("cifar100.npz.xz"),
        ),
    ],
)
def test_real_pixels_have_the_published_statistics(name, mean, std):
    verify(name)
    images = load_images(name).images.double() / 255
    assert images.mean((0, 2, 3)).tolist() == pytest.approx(mean, abs=2e-3)
    assert images.std((0, 2, 3)).tolist() == pytest.approx(std, abs=4e-3)
