"""FedJAX: its federated_averaging with client data sets in memory; a local step is jitted, its way
on a CPU.
"""

from __future__ import annotations

from functools import partial

import fedjax
import jax
import numpy as np
from fedjax.algorithms import fed_avg

from benchmarks.peers.jax_parts import laid_out, loss, weights_of
from benchmarks.peers.protocol import answer, timed
from benchmarks.peers.workloads import Arrays, Workload


def contender(workload: Workload, rounds: int, cores: int) -> tuple[list[float], Arrays]:
    x, y = workload.data()
    federation = fedjax.InMemoryFederatedData(
        {
            str(client).encode(): {"x": x[client], "y": y[client]}
            for client in range(workload.clients)
        }
    )
    slope = jax.grad(partial(loss, workload=workload))
    algorithm = fed_avg.federated_averaging(
        lambda weights, batch, rng: slope(weights, batch["x"], batch["y"]),
        client_optimizer=fedjax.optimizers.sgd(learning_rate=workload.lr),
        server_optimizer=fedjax.optimizers.sgd(learning_rate=1.0),
        client_batch_hparams=fedjax.ShuffleRepeatBatchHParams(
            workload.batch, num_epochs=workload.epochs, skip_shuffle=workload.full
        ),
    )
    sampler = fedjax.client_samplers.UniformGetClientSampler(federation, workload.cohort, seed=2)
    state = algorithm.init(laid_out(workload.start()))

    def one(_: int) -> None:
        nonlocal state
        state, _diagnostics = algorithm.apply(state, sampler.sample())
        jax.block_until_ready(state.params)

    np.random.seed(2)
    return timed(one, rounds), weights_of(state.params)


if __name__ == "__main__":
    answer(contender, "fedjax", "jax", "jaxlib", "numpy")
