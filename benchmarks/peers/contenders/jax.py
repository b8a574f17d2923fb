"""A compiled JAX loop: a round is one jitted function, with lax.scan over local steps; every core
is a device.

Clients are stacked by vmap, or in turn (lax.map) where they have a network, which is faster.
Convolutions differ:
on a CPU, XLA is much slower with those inside a loop or stacked, so that one jitted function is
called for each step.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import partial

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from benchmarks.peers.jax_parts import Weights, laid_out, loss, weights_of
from benchmarks.peers.protocol import answer, timed
from benchmarks.peers.workloads import Arrays, Workload

Play = Callable[[Weights, np.ndarray, np.ndarray], Weights]
"""A round: the weights, the members of the cohort and their batches ``[cohort, steps, batch]``."""


def contender(workload: Workload, rounds: int, cores: int) -> tuple[list[float], Arrays]:
    if not workload.convolutions:
        os.environ["XLA_FLAGS"] = f"--xla_force_host_platform_device_count={cores}"
    rng = np.random.default_rng(2)
    everywhere = NamedSharding(Mesh(np.array(jax.devices()), "cores"), PartitionSpec())
    x, y, weights = jax.device_put((*workload.data(), laid_out(workload.start())), everywhere)
    play = (by_steps if workload.convolutions else at_once)(workload, x, y)

    def one(_: int) -> None:
        nonlocal weights
        members = rng.choice(workload.clients, workload.cohort, replace=False)
        order = np.broadcast_to(
            np.arange(workload.samples), (workload.cohort, workload.epochs, workload.samples)
        )
        batches = rng.permuted(order, axis=2).reshape(workload.cohort, -1, workload.batch)
        weights = jax.block_until_ready(play(weights, members, batches))

    return timed(one, rounds), weights_of(weights)


def stepper(workload: Workload) -> Callable[..., Weights]:
    slope = jax.grad(partial(loss, workload=workload))

    def step(weights: Weights, x: jax.Array, y: jax.Array, batch: jax.Array) -> Weights:
        given = (x, y) if workload.full else (x[batch], y[batch])
        return jax.tree.map(lambda w, g: w - workload.lr * g, weights, slope(weights, *given))

    return step


def at_once(workload: Workload, x: jax.Array, y: jax.Array) -> Play:
    step = stepper(workload)

    def local(weights: Weights, x: jax.Array, y: jax.Array, batches: jax.Array) -> Weights:
        return jax.lax.scan(lambda w, batch: (step(w, x, y, batch), None), weights, batches)[0]

    def share(
        weights: Weights, x: jax.Array, y: jax.Array, members: jax.Array, batches: jax.Array
    ) -> Weights:
        """Of one device."""
        given = x[members], y[members], batches
        if workload.hidden:
            trained = jax.lax.map(lambda mine: local(weights, *mine), given)
        else:
            trained = jax.vmap(local, in_axes=(None, 0, 0, 0))(weights, *given)
        return [jax.lax.pmean(w.mean(0), "cores") for w in trained]

    same, split = PartitionSpec(), PartitionSpec("cores")
    specs = {"in_specs": (same, same, same, split, split), "out_specs": same, "check_vma": False}
    play = jax.jit(jax.shard_map(share, mesh=x.sharding.mesh, **specs))
    return lambda weights, members, batches: play(weights, x, y, members, batches)


def by_steps(workload: Workload, x: jax.Array, y: jax.Array) -> Play:
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
