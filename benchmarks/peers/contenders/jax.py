"""A compiled JAX loop: a round is one jitted function, with lax.scan over local steps and vmap over the cohort.

Not so for convolutions, which XLA is much slower with on a CPU once they are inside a loop or stacked by vmap (there
they become grouped ones): those clients run one after another, by one jitted function for each step.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks.peers.jax_parts import Weights, laid_out, loss, weights_of
from benchmarks.peers.protocol import answer, timed
from benchmarks.peers.workloads import Arrays, Workload

Play = Callable[[Weights, np.ndarray, np.ndarray], Weights]
"""A round: the weights, the members of the cohort and their batches ``[cohort, steps, batch]``."""


def contender(workload: Workload, rounds: int, cores: int) -> tuple[list[float], Arrays]:
    rng = np.random.default_rng(2)
    x, y = map(jnp.asarray, workload.data())
    play = (one_by_one if workload.convolutions else side_by_side)(workload, x, y)
    weights = laid_out(workload.start())

    def one(_: int) -> None:
        nonlocal weights
        members = rng.choice(workload.clients, workload.cohort, replace=False)
        order = np.broadcast_to(np.arange(workload.samples), (workload.cohort, workload.epochs, workload.samples))
        batches = rng.permuted(order, axis=2).reshape(workload.cohort, -1, workload.batch)
        weights = jax.block_until_ready(play(weights, members, batches))

    return timed(one, rounds), weights_of(weights)


def stepper(workload: Workload) -> Callable[..., Weights]:
    slope = jax.grad(partial(loss, workload=workload))

    def step(weights: Weights, x: jax.Array, y: jax.Array, batch: jax.Array) -> Weights:
        given = (x, y) if workload.full else (x[batch], y[batch])
        return jax.tree.map(lambda w, g: w - workload.lr * g, weights, slope(weights, *given))

    return step


def side_by_side(workload: Workload, x: jax.Array, y: jax.Array) -> Play:
    step = stepper(workload)

    def local(weights: Weights, x: jax.Array, y: jax.Array, batches: jax.Array) -> Weights:
        return jax.lax.scan(lambda w, batch: (step(w, x, y, batch), None), weights, batches)[0]

    @jax.jit
    def play(weights: Weights, x: jax.Array, y: jax.Array, members: jax.Array, batches: jax.Array) -> Weights:
        trained = jax.vmap(local, in_axes=(None, 0, 0, 0))(weights, x[members], y[members], batches)
        return [w.mean(0) for w in trained]

    return lambda weights, members, batches: play(weights, x, y, members, batches)


def one_by_one(workload: Workload, x: jax.Array, y: jax.Array) -> Play:
    inner = stepper(workload)
    step = jax.jit(lambda weights, x, y, client, batch: inner(weights, x[client], y[client], batch))
    mean = jax.jit(lambda trained: jax.tree.map(lambda *local: sum(local) / len(local), *trained))

    def play(weights: Weights, members: np.ndarray, batches: np.ndarray) -> Weights:
        trained = []
        for client, mine in zip(members, batches, strict=True):
            local = weights
            for batch in mine:
                local = step(local, x, y, client, batch)
            trained.append(local)
        return mean(trained)

    return play


if __name__ == "__main__":
    answer(contender, "jax", "jaxlib", "numpy")
