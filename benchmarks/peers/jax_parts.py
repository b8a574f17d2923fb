"""What the contenders in JAX share: the network as a function of its weights."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks.peers.workloads import KERNEL, PADDING, Arrays, Workload

Weights = list[jax.Array]


def laid_out(weights: Arrays) -> Weights:
    """Kernels from PyTorch's order to (height, width, in, out), XLA's fastest order on a CPU."""
    return [jnp.asarray(w.transpose(2, 3, 1, 0) if w.ndim == 4 else w) for w in weights]


def weights_of(weights: Weights) -> Arrays:
    return [np.asarray(w).transpose(3, 2, 0, 1) if w.ndim == 4 else np.asarray(w) for w in weights]


def scaled(x: jax.Array) -> jax.Array:
    return x.astype(jnp.float32) / 255 if x.dtype == jnp.uint8 else x


def loss(weights: Weights, x: jax.Array, y: jax.Array, workload: Workload) -> jax.Array:
    """The mean cross-entropy of samples ``[n, *shape]``."""
    h = scaled(x)
    layers = list(zip(weights[::2], weights[1::2], strict=True))
    depth = len(workload.convolutions)
    if depth:
        h = h.transpose(0, 2, 3, 1)
    for w, b in layers[:depth]:
        h = pool(jax.nn.relu(convolve(h, w) + b))
    h = h.transpose(0, 3, 1, 2).reshape(len(x), -1) if depth else h.reshape(len(x), -1)
    *hidden, (w, b) = layers[depth:]
    for inner, bias in hidden:
        h = jax.nn.relu(h @ inner.T + bias)
    scores = jax.nn.log_softmax(h @ w.T + b)
    return -jnp.take_along_axis(scores, y[:, None], 1).mean()


def convolve(h: jax.Array, w: jax.Array) -> jax.Array:
    """By XLA, except on small images: there its gradient takes ten times as long as that of patches
    and a product.
    """
    if h.shape[1] > 8:
        padding = [(PADDING, PADDING)] * 2
        return jax.lax.conv_general_dilated(
            h, w, (1, 1), padding, dimension_numbers=("NHWC", "HWIO", "NHWC")
        )
    h = jnp.pad(h, [(0, 0), (PADDING, PADDING), (PADDING, PADDING), (0, 0)])
    n, side = len(h), h.shape[1] - KERNEL + 1
    places = [(i, j) for i in range(KERNEL) for j in range(KERNEL)]
    patches = jnp.concatenate([h[:, i : i + side, j : j + side] for i, j in places], -1)
    return (patches.reshape(n * side**2, -1) @ w.reshape(-1, w.shape[-1])).reshape(
        n, side, side, -1
    )


def pool(h: jax.Array) -> jax.Array:
    """Maxima of 2x2: written with slices, whose gradient is faster than that of a window."""
    side = h.shape[1] // 2 * 2
    rows = jnp.maximum(h[:, :side:2], h[:, 1:side:2])
    return jnp.maximum(rows[:, :, :side:2], rows[:, :, 1:side:2])
