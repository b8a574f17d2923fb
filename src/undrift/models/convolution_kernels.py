"""Triton kernels of the convolutions of many clients; imported only where Triton is.

Images have channels last, ``[clients * each, height, width, channels]``. Weights lie as products
read them, ``[clients, rows, columns, inputs, outputs]``; a client's need not begin where another's
end.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

PLACES = 2048
"""Places of the output that one program sums, if there are programs enough."""
PROGRAMS = 528
"""More than so many share no sum: four for each multiprocessor of an H200."""


INNER = 64
"""Channels, or places, that a product takes at a time."""


class Meeting(NamedTuple):
    """Where the kernel of a convolution meets its input."""

    height: int
    width: int
    """Of the output."""
    stride: int
    above: int
    beside: int
    """Rows and columns of zeros before the input."""


def _tile(places: int, outer: int) -> dict[str, int]:
    """Fastest of a dozen on an H200 for 160 to 51,200 places and 64 to 512 channels."""
    n = triton.next_power_of_2(max(16, outer))
    if n <= 64:
        m, n, warps, stages = (64, n, 4, 4) if places <= 1024 else (128, n, 4, 3)
    elif places <= 1024:
        m, n, warps, stages = 64, 128, 4, 4
    else:
        m, n, warps, stages = 128, min(n, 256), 8, 3
    return {"M": m, "N": n, "num_warps": warps, "num_stages": _stages(stages, m, n)}


def _stages(wanted: int, m: int, n: int) -> int:
    """So many products under way, if their operands have room beside each other."""
    if not torch.cuda.is_available():
        return wanted
    card = triton.runtime.driver.active.utils.get_device_properties(torch.cuda.current_device())
    return int(min(wanted, max(1, card["max_shared_mem"] // (2 * INNER * (m + n)))))


def _inner(channels: int) -> int:
    """So many of these channels that they divide all of them."""
    return min(INNER, channels & -channels)


@triton.jit
def _images(
    x, weight, out, each, between_clients,
    HEIGHT: tl.constexpr, WIDTH: tl.constexpr, INNER: tl.constexpr,
    TALL: tl.constexpr, WIDE: tl.constexpr, OUTER: tl.constexpr,
    ROWS: tl.constexpr, COLUMNS: tl.constexpr,
    STRIDE: tl.constexpr, ABOVE: tl.constexpr, BESIDE: tl.constexpr, BACK: tl.constexpr,
    M: tl.constexpr, N: tl.constexpr, K: tl.constexpr,
):  # fmt: skip
    """What a convolution gives, or with ``BACK`` the slope in what it was given.

    With ``BACK`` an output of row h has met rows ``h + ABOVE - r`` of the kernel's rows r, divided
    by the stride: outputs with the same remainder have the same r, and a program has one remainder.
    """
    apart: tl.constexpr = STRIDE if BACK else 1
    step: tl.constexpr = -1 if BACK else 1
    tall: tl.constexpr = (TALL + apart - 1) // apart
    wide: tl.constexpr = (WIDE + apart - 1) // apart
    blocks: tl.constexpr = (OUTER + N - 1) // N
    chunks: tl.constexpr = INNER // K
    tile, client = tl.program_id(0), tl.program_id(2).to(tl.int64)
    below, right = tl.program_id(1) // apart, tl.program_id(1) % apart
    place = (tile // blocks) * M + tl.arange(0, M)
    image, i, j = place // (tall * wide), place // wide % tall, place % wide
    h, w = i * apart + below, j * apart + right
    live = (image < each) & (h < TALL) & (w < WIDE)
    if BACK:
        first_row, first_column = (below + ABOVE) % STRIDE, (right + BESIDE) % STRIDE
        rows = (ROWS - first_row + STRIDE - 1) // STRIDE
        columns = (COLUMNS - first_column + STRIDE - 1) // STRIDE
        top, left = i + (below + ABOVE) // STRIDE, j + (right + BESIDE) // STRIDE
    else:
        first_row, first_column, rows, columns = 0, 0, ROWS, COLUMNS
        top, left = i * STRIDE - ABOVE, j * STRIDE - BESIDE
    inner, outer = tl.arange(0, K), (tile % blocks) * N + tl.arange(0, N)
    x += client * each * (HEIGHT * WIDTH * INNER)
    weight += client * between_clients
    x_at = x + ((image * HEIGHT + top) * WIDTH + left)[:, None] * INNER + inner[None, :]
    if BACK:
        weight_at = weight + outer[:, None] * INNER + inner[None, :]
        written = (outer < OUTER)[:, None]
    else:
        weight_at = weight + inner[:, None] * OUTER + outer[None, :]
        written = (outer < OUTER)[None, :]
    total = tl.zeros([M, N], tl.float32)
    for chunk in range(rows * columns * chunks):
        tap, first = chunk // chunks, chunk % chunks * K
        r, c = tap // columns, tap % columns
        y, z = top + step * r, left + step * c
        met = live & (y >= 0) & (y < HEIGHT) & (z >= 0) & (z < WIDTH)
        a = tl.load(x_at + (step * (r * WIDTH + c) * INNER + first), met[:, None], 0.0)
        tap = (first_row + r * apart) * COLUMNS + first_column + c * apart
        if BACK:
            b = tl.load(weight_at + (tap * (INNER * OUTER) + first), written, 0.0).T
        else:
            b = tl.load(weight_at + (tap * INNER + first) * OUTER, written, 0.0)
        total = tl.dot(a, b, total)
    out += client * each * (TALL * WIDE * OUTER)
    at = ((image * TALL + h) * WIDE + w)[:, None] * OUTER + outer[None, :]
    tl.store(out + at, total.to(out.dtype.element_ty), live[:, None] & (outer < OUTER)[None, :])


@triton.jit
def _weights(
    x, slope, out, each, clients, splits,
    HEIGHT: tl.constexpr, WIDTH: tl.constexpr, INNER: tl.constexpr,
    TALL: tl.constexpr, WIDE: tl.constexpr, OUTER: tl.constexpr,
    ROWS: tl.constexpr, COLUMNS: tl.constexpr,
    STRIDE: tl.constexpr, ABOVE: tl.constexpr, BESIDE: tl.constexpr,
    M: tl.constexpr, N: tl.constexpr, K: tl.constexpr,
):  # fmt: skip
    """The slope in the weights; each of ``splits`` sums over some of the places of the output."""
    blocks: tl.constexpr = (OUTER + N - 1) // N
    inputs: tl.constexpr = ROWS * COLUMNS * INNER
    tile, split, client = tl.program_id(0), tl.program_id(1), tl.program_id(2).to(tl.int64)
    row, outer = (tile // blocks) * M + tl.arange(0, M), (tile % blocks) * N + tl.arange(0, N)
    tap = row // INNER
    below, right = tap // COLUMNS - ABOVE, tap % COLUMNS - BESIDE
    x += client * each * (HEIGHT * WIDTH * INNER)
    slope += client * each * (TALL * WIDE * OUTER)
    x_at = x + ((below * WIDTH + right) * INNER + row % INNER)[None, :]
    slope_at = slope + outer[None, :]
    total = tl.zeros([M, N], tl.float32)
    places = each * (TALL * WIDE)
    for start in range(split * K, places, splits * K):
        place = start + tl.arange(0, K)
        image, i, j = place // (TALL * WIDE), place // WIDE % TALL, place % WIDE
        y, z = (i * STRIDE)[:, None] + below[None, :], (j * STRIDE)[:, None] + right[None, :]
        met = (place < places)[:, None] & (row < inputs)[None, :]
        met &= (y >= 0) & (y < HEIGHT) & (z >= 0) & (z < WIDTH)
        here = ((image * HEIGHT + i * STRIDE) * WIDTH + j * STRIDE) * INNER
        a = tl.load(x_at + here[:, None], met, 0.0)
        b = tl.load(
            slope_at + (place * OUTER)[:, None],
            (place < places)[:, None] & (outer < OUTER)[None, :],
            0.0,
        )
        total = tl.dot(a.T, b, total)
    out += (split * clients + client) * (inputs * OUTER)
    at = row[:, None] * OUTER + outer[None, :]
    written = (row < inputs)[:, None] & (outer < OUTER)[None, :]
    tl.store(out + at, total.to(out.dtype.element_ty), written)


def _run_images(x: Tensor, weight: Tensor, out: Tensor, meeting: Meeting, back: bool) -> None:
    clients, rows, columns = weight.shape[:3]
    each, apart = len(x) // clients, meeting.stride if back else 1
    _, inner, height, width = x.shape
    _, outer, tall, wide = out.shape
    places = each * triton.cdiv(tall, apart) * triton.cdiv(wide, apart)
    tile = _tile(places, outer)
    programs = triton.cdiv(places, tile["M"]) * triton.cdiv(outer, tile["N"])
    _images[(programs, apart * apart, clients)](
        x, weight, out, each, weight.stride(0),
        HEIGHT=height, WIDTH=width, INNER=inner, TALL=tall, WIDE=wide, OUTER=outer,
        ROWS=rows, COLUMNS=columns, STRIDE=meeting.stride,
        ABOVE=meeting.above, BESIDE=meeting.beside, BACK=back, K=_inner(inner), **tile,
    )  # fmt: skip


def forward(x: Tensor, weight: Tensor, out: Tensor, meeting: Meeting) -> None:
    """Write what the convolutions give."""
    _run_images(x, weight, out, meeting, back=False)


def slope_of_images(slope: Tensor, weight: Tensor, out: Tensor, meeting: Meeting) -> None:
    """Write the slope in the images."""
    _run_images(slope, weight, out, meeting, back=True)


def slope_of_weights(slope: Tensor, x: Tensor, like: Tensor, meeting: Meeting) -> Tensor:
    """The slope in the weights, which are ``like`` these."""
    clients, rows, columns, inner, outer = like.shape
    each, places = len(x) // clients, slope.numel() // outer // clients
    m, n, warps = (128, 64, 4) if outer <= 64 else (64, 128, 4)
    if outer >= 256:
        m, n, warps = (128, 256, 8) if inner >= 256 and places >= 800 else (128, 128, 4)
    n = min(n, triton.next_power_of_2(max(16, outer)))
    programs = triton.cdiv(rows * columns * inner, m) * triton.cdiv(outer, n)
    splits = max(1, min(places // PLACES, PROGRAMS // (programs * clients)))
    dtype = like.dtype if splits == 1 else torch.float32
    out = like.new_empty((splits, *like.shape), dtype=dtype)
    _weights[(programs, splits, clients)](
        x, slope, out, each, clients, splits,
        HEIGHT=x.shape[2], WIDTH=x.shape[3], INNER=inner,
        TALL=slope.shape[2], WIDE=slope.shape[3], OUTER=outer,
        ROWS=rows, COLUMNS=columns, STRIDE=meeting.stride,
        ABOVE=meeting.above, BESIDE=meeting.beside,
        M=m, N=n, K=INNER, num_warps=warps, num_stages=_stages(3, m, n),
    )  # fmt: skip
    return out[0] if splits == 1 else out.sum(0).to(like.dtype)
