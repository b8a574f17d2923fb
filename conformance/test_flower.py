"""Flower's strategies against the vectors: pytest conformance/test_flower.py"""

import numpy as np
import pytest

from conformance.check import METHODS, PROBLEMS, SETTINGS, check, gradient, load

pytest.importorskip("flwr")
from flwr.app import ArrayRecord, Message, MetricRecord, RecordDict
from flwr.serverapp import strategy as flower
from flwr.supercore.task_identity import TaskIdentity

TaskIdentity.run_id = TaskIdentity.node_id = TaskIdentity.task_id = 1  # outside of a ServerApp

FEDOPT = {"eta": 0.1, "beta_1": 0.9, "beta_2": 0.99, "tau": 0.01}
AVGM = METHODS["FedAvgM"]
STRATEGIES = {
    "FedProx": lambda: flower.FedProx(proximal_mu=METHODS["FedProx"]["mu"]),
    "FedAvgM": lambda: flower.FedAvgM(
        server_learning_rate=AVGM["server_lr"], server_momentum=AVGM["beta"]
    ),
    "FedAdam": lambda: flower.FedAdam(**FEDOPT),
    "FedYogi": lambda: flower.FedYogi(**FEDOPT),
}
DIFFERS = {
    "FedAdam": "begins with v = 0, not tau^2, and corrects the step for bias",
    "FedYogi": "begins with v = 0, not tau^2",
}


def reply(strategy, data, client, x):
    """What a client sends after its local steps; the proximal term is its own affair in Flower."""
    y, mu = x.copy(), getattr(strategy, "proximal_mu", 0.0)
    for _ in range(SETTINGS["steps"]):
        y = y - SETTINGS["lr"] * (gradient(data, client, y) + mu * (y - x))
    content = {"arrays": ArrayRecord([y]), "metrics": MetricRecord({"num-examples": 1})}
    asked = Message(RecordDict(), dst_node_id=int(client) + 1, message_type="train")
    return Message(RecordDict(content), reply_to=asked)


def trajectory(strategy, problem):
    data = load(problem)
    points = [data["x0"]]
    for k, members in enumerate(data["cohorts"], start=1):
        if k == 1:  # what configure_train does
            strategy.current_arrays = ArrayRecord([data["x0"]])
        if isinstance(strategy, flower.FedAdam | flower.FedYogi):
            strategy.current_arrays = {"0": points[-1]}
        arrays, _ = strategy.aggregate_train(
            k, [reply(strategy, data, client, points[-1]) for client in members]
        )
        points.append(arrays.to_numpy_ndarrays()[0])
    return np.stack(points)


@pytest.mark.parametrize("problem", PROBLEMS)
@pytest.mark.parametrize("method", STRATEGIES)
def test_flower(method, problem, request):
    if method in DIFFERS:
        request.applymarker(pytest.mark.xfail(reason=DIFFERS[method], strict=True))
    check(problem, method, trajectory(STRATEGIES[method](), problem))


@pytest.mark.parametrize("problem", PROBLEMS)
def test_the_start_is_all_that_differs_in_yogi(problem):
    strategy = STRATEGIES["FedYogi"]()
    strategy.v_t = {"0": np.full_like(load(problem)["x0"], FEDOPT["tau"] ** 2)}
    check(problem, "FedYogi", trajectory(strategy, problem))
