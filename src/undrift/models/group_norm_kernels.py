"""Triton kernels of a group norm with what follows it; imported only where Triton is."""

from __future__ import annotations

from typing import NamedTuple

import triton
import triton.language as tl
from torch import Tensor

HELD = 32768
"""Numbers of a group that a program keeps in registers, half of that backward; larger groups are
read twice.
"""
BLOCK = 8192
"""Numbers of a larger group that a program reads at a time."""
MOST = 16
"""Warps of a program."""
WIDE = 256
"""Numbers in bf16 that a warp loads at once."""


class Tiles(NamedTuple):
    """How a program reads its group."""

    columns: int
    rows: int
    warps: int

    @property
    def together(self) -> int:
        """Rows that a warp loads at once."""
        return max(1, min(self.rows, WIDE // self.columns))

    @property
    def apart(self) -> int:
        """Warps with rows of their own."""
        return max(1, min(self.warps, self.rows // self.together))


def tiles(width: int, pixels: int, backward: bool) -> Tiles:
    """Chosen by measurements on an H200, of groups from 256 x 16 to 32 x 1024."""
    columns, rows = triton.next_power_of_2(width), triton.next_power_of_2(pixels)
    numbers = columns * rows
    if numbers > (HELD // 2 if backward else HELD):
        return Tiles(columns, max(1, BLOCK // columns), MOST)
    warps = min(numbers // 1024, max(4 if backward else 8, numbers // 2048))
    return Tiles(columns, rows, max(1, min(warps, MOST)))


@triton.jit
def _forward(
    x, residual, weight, bias, out, stats, eps, each, apart,
    GROUPS: tl.constexpr, WIDTH: tl.constexpr, PIXELS: tl.constexpr,
    COLUMNS: tl.constexpr, ROWS: tl.constexpr,
    RESIDUAL: tl.constexpr, RELU: tl.constexpr,
):  # fmt: skip
    """One program per sample and group, which is ``PIXELS`` rows of ``WIDTH`` channels.

    Every ``each`` samples have their own ``weight`` and ``bias``.
    """
    program = tl.program_id(0)
    group = program % GROUPS
    column, row = tl.arange(0, COLUMNS), tl.arange(0, ROWS)
    first = (program // GROUPS).to(tl.int64) * (PIXELS * GROUPS * WIDTH) + group * WIDTH
    here = row[:, None] * (GROUPS * WIDTH) + column[None, :]
    inside = column < WIDTH
    channels = program // GROUPS // each * apart + group * WIDTH + column
    w = tl.load(weight + channels, inside, 0.0)[None, :]
    b = tl.load(bias + channels, inside, 0.0)[None, :]
    count: tl.constexpr = PIXELS * WIDTH
    if ROWS >= PIXELS:
        live = (row < PIXELS)[:, None] & inside[None, :]
        v = tl.load(x + first + here, live, 0.0).to(tl.float32)
        mean = tl.sum(v) / count
        v = tl.where(live, v - mean, 0.0)
        scale = tl.rsqrt(tl.sum(v * v) / count + eps)
        v = v * scale * w + b
        if RESIDUAL:
            v += tl.load(residual + first + here, live, 0.0).to(tl.float32)
        if RELU:
            v = tl.maximum(v, 0.0, propagate_nan=tl.PropagateNan.ALL)
        tl.store(out + first + here, v.to(out.dtype.element_ty), live)
    else:
        # Differences from one number of the group: the squares of large numbers would cancel.
        origin = tl.load(x + first).to(tl.float32)
        total = tl.zeros([ROWS, COLUMNS], tl.float32)
        squares = tl.zeros([ROWS, COLUMNS], tl.float32)
        for start in range(0, PIXELS, ROWS):
            at = first + start * (GROUPS * WIDTH) + here
            live = (start + row < PIXELS)[:, None] & inside[None, :]
            v = tl.load(x + at, live, 0.0).to(tl.float32)
            v = tl.where(live, v - origin, 0.0)
            total += v
            squares += v * v
        shift = tl.sum(total) / count
        scale = tl.rsqrt(tl.sum(squares) / count - shift * shift + eps)
        mean = origin + shift
        for start in range(0, PIXELS, ROWS):
            at = first + start * (GROUPS * WIDTH) + here
            live = (start + row < PIXELS)[:, None] & inside[None, :]
            v = (tl.load(x + at, live, 0.0).to(tl.float32) - mean) * scale * w + b
            if RESIDUAL:
                v += tl.load(residual + at, live, 0.0).to(tl.float32)
            if RELU:
                v = tl.maximum(v, 0.0, propagate_nan=tl.PropagateNan.ALL)
            tl.store(out + at, v.to(out.dtype.element_ty), live)
    tl.store(stats + 2 * program, mean)
    tl.store(stats + 2 * program + 1, scale)


@triton.jit
def _slopes(
    slope, x, out, of_residual, at, live, mean, scale, w, b,
    RESIDUAL: tl.constexpr, RELU: tl.constexpr, WRITE: tl.constexpr,
):  # fmt: skip
    """The slope in what the norm gave, and the input normalised."""
    g = tl.load(slope + at, live, 0.0)
    v = tl.where(live, (tl.load(x + at, live, 0.0).to(tl.float32) - mean) * scale, 0.0)
    if RESIDUAL:
        if RELU:
            g = tl.where(tl.load(out + at, live, 0.0) > 0, g, 0.0)
        if WRITE:
            tl.store(of_residual + at, g, live)
    elif RELU:
        g = tl.where(v * w + b > 0, g, 0.0)
    return g.to(tl.float32), v


@triton.jit
def _folded(v, APART: tl.constexpr, TOGETHER: tl.constexpr):
    """Sums over the rows that each thread has."""
    rows: tl.constexpr = APART * TOGETHER
    return tl.sum(tl.reshape(v, [v.shape[0] // rows, rows, v.shape[1]]), 0)


@triton.jit
def _by_warp(v, APART: tl.constexpr, TOGETHER: tl.constexpr):
    """Sums over the rows of each warp."""
    return tl.sum(tl.reshape(v, [APART, TOGETHER, v.shape[1]]), 1)


@triton.jit
def _backward(
    slope, x, out, weight, bias, stats, of_x, of_residual, of_weight, of_bias, each, apart,
    GROUPS: tl.constexpr, WIDTH: tl.constexpr, PIXELS: tl.constexpr,
    COLUMNS: tl.constexpr, ROWS: tl.constexpr,
    RESIDUAL: tl.constexpr, RELU: tl.constexpr,
    APART: tl.constexpr, TOGETHER: tl.constexpr,
):  # fmt: skip
    """The same programs; ``of_weight`` and ``of_bias`` get ``APART`` rows per sample.

    Each warp sums its own rows: sums of columns across warps take the longer the more there are.
    """
    program = tl.program_id(0)
    group = program % GROUPS
    column, row = tl.arange(0, COLUMNS), tl.arange(0, ROWS)
    first = (program // GROUPS).to(tl.int64) * (PIXELS * GROUPS * WIDTH) + group * WIDTH
    here = row[:, None] * (GROUPS * WIDTH) + column[None, :]
    inside = (column < WIDTH)[None, :]
    channels = group * WIDTH + column[None, :]
    given = program // GROUPS // each * apart + channels
    w = tl.load(weight + given, inside, 0.0)
    b = tl.load(bias + given, inside, 0.0)
    mean = tl.load(stats + 2 * program)
    scale = tl.load(stats + 2 * program + 1)
    count: tl.constexpr = PIXELS * WIDTH
    if ROWS >= PIXELS:
        live = (row < PIXELS)[:, None] & inside
        g, v = _slopes(
            slope, x, out, of_residual, first + here, live, mean, scale, w, b, RESIDUAL, RELU, True
        )
        down = _by_warp(_folded(g, APART, TOGETHER), APART, TOGETHER)
        turned = _by_warp(_folded(g * v, APART, TOGETHER), APART, TOGETHER)
        s = tl.sum(down * w) / count
        t = tl.sum(turned * w) / count
        found = scale * (g * w - s - v * t)
        tl.store(of_x + first + here, found.to(of_x.dtype.element_ty), live)
    else:
        downs = tl.zeros([APART * TOGETHER, COLUMNS], tl.float32)
        turns = tl.zeros([APART * TOGETHER, COLUMNS], tl.float32)
        for start in range(0, PIXELS, ROWS):
            at = first + start * (GROUPS * WIDTH) + here
            live = (start + row < PIXELS)[:, None] & inside
            g, v = _slopes(
                slope, x, out, of_residual, at, live, mean, scale, w, b, RESIDUAL, RELU, True
            )
            downs += _folded(g, APART, TOGETHER)
            turns += _folded(g * v, APART, TOGETHER)
        down, turned = _by_warp(downs, APART, TOGETHER), _by_warp(turns, APART, TOGETHER)
        s = tl.sum(down * w) / count
        t = tl.sum(turned * w) / count
        for start in range(0, PIXELS, ROWS):
            at = first + start * (GROUPS * WIDTH) + here
            live = (start + row < PIXELS)[:, None] & inside
            g, v = _slopes(
                slope, x, out, of_residual, at, live, mean, scale, w, b, RESIDUAL, RELU, False
            )
            found = scale * (g * w - s - v * t)
            tl.store(of_x + at, found.to(of_x.dtype.element_ty), live)
    apart = (program // GROUPS) * APART + tl.arange(0, APART)[:, None]
    tl.store(of_bias + apart * (GROUPS * WIDTH) + channels, down, inside)
    tl.store(of_weight + apart * (GROUPS * WIDTH) + channels, turned, inside)


def _tiles(x: Tensor, groups: int, backward: bool) -> Tiles:
    return tiles(x.shape[1] // groups, x.shape[2] * x.shape[3], backward)


def _shape(x: Tensor, groups: int, found: Tiles) -> dict[str, int]:
    return {
        "GROUPS": groups,
        "WIDTH": x.shape[1] // groups,
        "PIXELS": x.shape[2] * x.shape[3],
        "COLUMNS": found.columns,
        "ROWS": found.rows,
        "num_warps": found.warps,
    }


def forward(
    x: Tensor,
    residual: Tensor | None,
    weight: Tensor,
    bias: Tensor,
    out: Tensor,
    stats: Tensor,
    eps: float,
    relu: bool,
) -> None:
    """Write ``out`` and ``stats [n, groups, 2]``; images have channels last."""
    groups = stats.shape[1]
    shape = _shape(x, groups, _tiles(x, groups, backward=False))
    _forward[(len(x) * groups,)](
        x, x if residual is None else residual, weight, bias, out, stats, eps, *_clients(x, weight),
        RESIDUAL=residual is not None, RELU=relu, **shape,
    )  # fmt: skip


def _clients(x: Tensor, weight: Tensor) -> tuple[int, int]:
    """Samples that share weights, and numbers from theirs to the next ones'."""
    return (len(x), 0) if weight.dim() == 1 else (len(x) // len(weight), weight.stride(0))


def rows_apart(x: Tensor, groups: int) -> int:
    """Rows per sample in which slopes of weight and bias are found."""
    return _tiles(x, groups, backward=True).apart


def backward(
    slope: Tensor,
    x: Tensor,
    out: Tensor | None,
    weight: Tensor,
    bias: Tensor,
    stats: Tensor,
    of_x: Tensor,
    of_residual: Tensor | None,
    of_parameters: Tensor,
    relu: bool,
) -> None:
    """Write the slopes; ``of_parameters [2, n * rows_apart, channels]`` is for weight and bias.

    They are its sums over the rows.
    """
    groups = stats.shape[1]
    found = _tiles(x, groups, backward=True)
    _backward[(len(x) * groups,)](
        slope, x, x if out is None else out, weight, bias, stats,
        of_x, of_x if of_residual is None else of_residual, *of_parameters, *_clients(x, weight),
        RESIDUAL=out is not None, RELU=relu,
        APART=found.apart, TOGETHER=found.together, **_shape(x, groups, found),
    )  # fmt: skip
