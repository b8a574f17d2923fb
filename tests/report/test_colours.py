"""Curves can be told apart by readers who see two colours of three, and from the ground."""

import itertools
import re
from pathlib import Path

import numpy as np
import pytest

import undrift.report
from undrift.plots.curves import COLOURS, DASHES, MARKS

CSS = (Path(undrift.report.__file__).parent / "assets/report.css").read_text(encoding="utf-8")
LIGHT, DARK = (dict(re.findall(r"--(\w+): (#\w{6})", part)) for part in CSS.split("@media")[:2])
PALETTES = {
    "figures": (COLOURS, "#ffffff"),
    "light": ([LIGHT[f"c{k}"] for k in range(9)], LIGHT["card"]),
    "dark": ([DARK[f"c{k}"] for k in range(9)], DARK["card"]),
}
SEEN = {
    "all colours": np.eye(3),
    "no long waves": [
        [0.152286, 1.052583, -0.204868],
        [0.114503, 0.786281, 0.099216],
        [-0.003882, -0.048116, 1.051998],
    ],
    "no middle waves": [
        [0.367322, 0.860646, -0.227968],
        [0.280085, 0.672501, 0.047413],
        [-0.011820, 0.042940, 0.968881],
    ],
    "no short waves": [
        [1.255528, -0.076749, -0.178779],
        [-0.078411, 0.930809, 0.147602],
        [0.004733, 0.691367, 0.303900],
    ],
}
"""Machado, Oliveira and Fernandes (2009), Table 1, severity 1: on linear red, green and blue."""
XYZ = np.array(
    [[0.412456, 0.357576, 0.180438], [0.212673, 0.715152, 0.072175], [0.019334, 0.119192, 0.950304]]
)


def linear(colour):
    share = np.array([int(colour[k : k + 2], 16) for k in (1, 3, 5)]) / 255
    return np.where(share <= 0.04045, share / 12.92, ((share + 0.055) / 1.055) ** 2.4)


def lab(colour, seen):
    """Where a colour is in CIELAB; 2.3 is a difference that is just noticed."""
    share = XYZ @ np.clip(seen @ linear(colour), 0, 1) / XYZ.sum(1)
    x, y, z = np.where(share > (6 / 29) ** 3, np.cbrt(share), share * (29 / 6) ** 2 / 3 + 4 / 29)
    return np.array([116 * y - 16, 500 * (x - y), 200 * (y - z)])


@pytest.mark.parametrize("seen", SEEN)
@pytest.mark.parametrize("palette", PALETTES)
def test_no_two_colours_look_alike(palette, seen):
    colours, _ = PALETTES[palette]
    places = [lab(colour, np.array(SEEN[seen])) for colour in colours]
    apart = {
        pair: np.linalg.norm(places[pair[0]] - places[pair[1]])
        for pair in itertools.combinations(range(9), 2)
    }
    assert {pair: round(far, 1) for pair, far in apart.items() if far < 10} == {}


@pytest.mark.parametrize("palette", ["light", "dark"])
def test_colours_stand_out_from_the_ground(palette):
    colours, ground = PALETTES[palette]
    behind = XYZ[1] @ linear(ground)
    for colour in colours:
        low, high = sorted([behind, XYZ[1] @ linear(colour)])
        assert (high + 0.05) / (low + 0.05) >= 3, f"{colour} on {ground}"


def test_curves_differ_without_colours():
    assert len(set(MARKS)) == len(COLOURS) and len(set(DASHES)) == len(DASHES)
    js = (Path(undrift.report.__file__).parent / "assets/report.js").read_text(encoding="utf-8")
    (symbols,) = re.findall(r"symbols = \[(.*?)\]", js)
    assert len(set(symbols.split(", "))) == len(COLOURS)
