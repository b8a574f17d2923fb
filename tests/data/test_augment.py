"""Batched augmentation against a naive reference, one image and one operation at a time."""

import itertools

import numpy as np
import pytest
import torch
from PIL import Image

from undrift.core.streams import Streams
from undrift.data.augment import (
    ImageAugmentation,
    ImageDraws,
    Normalise,
    fedacg,
    fedrecu,
    fedspeed,
    presets,
)


def naive(augmentation, image, draws, k):
    """One image ``[C, H, W]`` of bytes."""
    for operation in augmentation.order:
        if operation == "rotate":
            planes = [Image.fromarray(plane) for plane in image]
            image = np.stack(
                [p.rotate(float(draws.angles[k]), Image.Resampling.NEAREST) for p in planes]
            )
        elif operation == "crop":
            pad, (top, left) = augmentation.padding, draws.offsets[k]
            wide = np.pad(image, ((0, 0), (pad, pad), (pad, pad)))
            image = wide[:, top : top + image.shape[1], left : left + image.shape[2]]
        elif draws.flips[k]:
            image = image[:, :, ::-1]
    return image


def pixels(n, channels=3, height=32, width=32):
    return np.random.default_rng(1).integers(1, 256, (n, channels, height, width), dtype=np.uint8)


@pytest.mark.parametrize(
    "order", list(itertools.permutations(["rotate", "crop", "flip"])), ids="-".join
)
@pytest.mark.parametrize("shape", [(3, 32, 32), (1, 28, 28), (2, 9, 14)], ids=str)
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"flip": True},
        {"padding": 4},
        {"rotation": 10.0},
        {"padding": 4, "flip": True, "rotation": 10.0},
        {"padding": 3, "flip": True, "rotation": 180.0, "crop_probability": 0.5},
    ],
    ids=str,
)
def test_batched_equals_one_by_one(options, shape, order):
    augmentation = ImageAugmentation(**options, order=order)
    images = pixels(24, *shape)
    draws = augmentation.draw(np.random.default_rng(0), 24)
    moved = augmentation.apply(torch.tensor(images), draws.to("cpu"))
    assert moved.dtype == torch.uint8
    expected = np.stack([naive(augmentation, image, draws, k) for k, image in enumerate(images)])
    np.testing.assert_array_equal(moved.numpy(), expected)
    floats = augmentation.apply(torch.tensor(images).float(), draws.to("cpu"))
    assert floats.dtype == torch.float32
    np.testing.assert_array_equal(floats.numpy(), expected)


def test_draws_are_a_pure_function_of_the_generator():
    augmentation = ImageAugmentation(padding=4, crop_probability=0.5, flip=True, rotation=10)
    one, two, other = (augmentation.draw(Streams(0).at("augment", round=r), 50) for r in (1, 1, 2))
    for field in ("offsets", "flips", "angles"):
        np.testing.assert_array_equal(getattr(one, field), getattr(two, field))
        assert (getattr(one, field) != getattr(other, field)).any()


def test_draws_have_the_chances_they_should():
    n = 90_000
    draws = ImageAugmentation(padding=4, crop_probability=0.5, flip=True, rotation=10).draw(
        np.random.default_rng(0), n
    )
    assert draws.flips.mean() == pytest.approx(0.5, abs=0.01)
    assert np.abs(draws.angles).max() <= 10 and draws.angles.std() == pytest.approx(
        20 / 12**0.5, rel=0.02
    )
    cells = np.bincount(9 * draws.offsets[:, 0] + draws.offsets[:, 1], minlength=81) / n
    assert cells[40] == pytest.approx(0.5 + 0.5 / 81, abs=0.01)
    assert np.delete(cells, 40) == pytest.approx(0.5 / 81, rel=0.2)


def test_joined_draws_are_the_batches_one_after_another():
    augmentation, rng = (
        ImageAugmentation(padding=2, flip=True, rotation=5),
        np.random.default_rng(0),
    )
    batches = [augmentation.draw(rng, n) for n in (3, 5)]
    images = torch.tensor(pixels(8))
    apart = [
        augmentation.apply(x, d.to("cpu"))
        for x, d in zip(images.split([3, 5]), batches, strict=True)
    ]
    assert torch.equal(
        augmentation.apply(images, ImageDraws.join(batches).to("cpu")), torch.cat(apart)
    )


def test_normalise_is_to_tensor_and_normalize():
    images = torch.tensor(pixels(2))
    out = Normalise((0.5, 0.4, 0.3), (0.2, 0.1, 0.25))(images)
    assert out.dtype == torch.float32
    for c, (mean, std) in enumerate([(0.5, 0.2), (0.4, 0.1), (0.3, 0.25)]):
        torch.testing.assert_close(out[:, c], (images[:, c].float() / 255 - mean) / std)
    with pytest.raises(
        ValueError, match=r"uint8 \[n, 3, H, W\]; got torch.float32 \[2, 3, 32, 32\]"
    ):
        Normalise((0.5, 0.4, 0.3), (0.2, 0.1, 0.25))(images.float())


@pytest.mark.parametrize("paper", presets)
def test_presets_say_what_lies_outside_of_the_image(paper):
    pipeline = presets[paper]("cifar10")
    draws = ImageDraws(np.zeros((1, 2), dtype=np.int64), np.array([False]), np.zeros(1)).to("cpu")
    corner = pipeline(torch.tensor(pixels(1)), draws)[0, :, 0, 0]
    black = pipeline.normalise(torch.zeros(1, 3, 1, 1, dtype=torch.uint8)).flatten()
    torch.testing.assert_close(corner, torch.zeros(3) if paper == "fedspeed" else black)


def test_statistics_of_cifar_100():
    """Means, then deviations of the training images, as they are commonly given."""
    known = Normalise((0.5071, 0.4867, 0.4408), (0.2675, 0.2565, 0.2761))
    assert fedacg("cifar100").normalise == fedspeed("cifar100").normalise == known


def test_presets_are_the_papers():
    assert fedacg().augmentation.order == ("rotate", "crop", "flip")
    assert fedacg("tiny-imagenet").augmentation == ImageAugmentation(
        padding=4, flip=True, rotation=10
    )
    assert (
        fedrecu("cifar100").normalise == fedrecu("cifar10").normalise == fedacg("cifar10").normalise
    )
    assert fedrecu().augmentation == ImageAugmentation(padding=4, flip=True)
    assert fedspeed("cifar100").normalise == fedacg("cifar100").normalise
    assert [fedspeed(d).augmentation.padding for d in ("cifar10", "cifar100", "tiny-imagenet")] == [
        4,
        4,
        8,
    ]
    assert fedspeed().augmentation.crop_probability == 0.5
    assert fedspeed().augmentation.order.index("flip") < fedspeed().augmentation.order.index("crop")
    with pytest.raises(ValueError, match="unknown data set 'cifar'"):
        fedrecu("cifar")


def test_bad_augmentations_are_refused():
    for bad in (
        {"padding": -1},
        {"rotation": -1.0},
        {"crop_probability": 1.5},
        {"order": ("crop",)},
    ):
        with pytest.raises(ValueError, match="is not allowed"):
            ImageAugmentation(**bad)
