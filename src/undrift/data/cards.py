"""What is known of each image set before any file is read."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

from undrift.core.params import unknown


@dataclasses.dataclass(frozen=True)
class Card:
    """``train`` and ``test`` count the images of each class; ``files`` have their official MD5."""

    name: str
    title: str
    shape: tuple[int, int, int]
    train: tuple[int, ...]
    test: tuple[int, ...]
    base: str = ""
    files: Mapping[str, str] = dataclasses.field(default_factory=dict)

    def __str__(self) -> str:
        size = " x ".join(map(str, self.shape))
        counts = f"{sum(self.train)} + {sum(self.test)} images of {size}, {len(self.train)} classes"
        files = "".join(f"\n  {self.base}{file}  md5 {md5}" for file, md5 in self.files.items())
        return f"{self.name}: {self.title}, {counts}{files}"


_TORONTO = "https://www.cs.toronto.edu/~kriz/"
_cards = (
    Card(
        name="digits",
        title="8 x 8 digits that come with scikit-learn",
        shape=(1, 8, 8),
        train=(147, 147, 138, 150, 137, 153, 141, 139, 146, 139),
        test=(31, 35, 39, 33, 44, 29, 40, 40, 28, 41),
    ),
    Card(
        name="mnist",
        title="MNIST",
        shape=(1, 28, 28),
        train=(5923, 6742, 5958, 6131, 5842, 5421, 5918, 6265, 5851, 5949),
        test=(980, 1135, 1032, 1010, 982, 892, 958, 1028, 974, 1009),
        base="https://ossci-datasets.s3.amazonaws.com/mnist/",
        files={
            "train-images-idx3-ubyte.gz": "f68b3c2dcbeaaa9fbdd348bbdeb94873",
            "train-labels-idx1-ubyte.gz": "d53e105ee54ea40749a09fcbcd1e9432",
            "t10k-images-idx3-ubyte.gz": "9fb629c4189551a2d022fa330f9573f3",
            "t10k-labels-idx1-ubyte.gz": "ec29112dd5afa0611ce80d1b7f02629c",
        },
    ),
    Card(
        name="cifar10",
        title="CIFAR-10",
        shape=(3, 32, 32),
        train=(5000,) * 10,
        test=(1000,) * 10,
        base=_TORONTO,
        files={"cifar-10-binary.tar.gz": "c32a1d4ab5d03f1284b67883e8d87530"},
    ),
    Card(
        name="cifar100",
        title="CIFAR-100",
        shape=(3, 32, 32),
        train=(500,) * 100,
        test=(100,) * 100,
        base=_TORONTO,
        files={"cifar-100-binary.tar.gz": "03b5dce01913d631647c71ecec9e9cb8"},
    ),
    Card(
        name="tiny-imagenet",
        title="Tiny-ImageNet-200",
        shape=(3, 64, 64),
        train=(500,) * 200,
        test=(50,) * 200,
        base="http://cs231n.stanford.edu/",
        files={"tiny-imagenet-200.zip": "90528d7ca1a48142e341f4ef8d21d0de"},
    ),
)
CARDS: Mapping[str, Card] = {card.name: card for card in _cards}


def info(name: str) -> Card:
    """What the image set ``name`` is: shape, images per class, official files and their hashes.

    >>> sum(info("cifar10").train)
    50000
    """
    if name not in CARDS:
        raise ValueError(unknown("image set", name, CARDS))
    return CARDS[name]
