"""Estimated constants against exact ones: python -m benchmarks.constants.

Those of logistic regressions are of dense Hessians, by NumPy, at the two points that are looked at.
"""

import dataclasses
import time

import numpy as np
import torch

import undrift as ud

SEEDS = range(3)
EXACT = {
    "quadratic, 8 clients, d = 6": ("quadratic", {"clients": 8, "dim": 6}),
    "quadratic, heterogeneity 0.1": ("quadratic", {"dim": 30, "heterogeneity": 0.1}),
    "quadratic, L/mu = 10,000": ("quadratic", {"dim": 40, "mu": 0.01, "L": 100.0}),
    "quadratic, 50 clients, d = 100": ("quadratic", {"clients": 50, "dim": 100}),
    "quadratic, d = 300": ("quadratic", {"clients": 5, "dim": 300}),
    "least squares": ("least-squares", {"clients": 5}),
    "FedRed's quadratic, d = 200": ("fedred", {"dim": 200}),
    "logistic, breast cancer": ("logistic", {"data": "breast-cancer", "clients": 4}),
    "logistic, Dirichlet 0.3": ("logistic", {"data": "breast-cancer", "beta": 0.3, "l2": 0.1}),
    "logistic, a9a, 20 clients": ("logistic", {"data": "a9a", "clients": 20}),
    "logistic, a9a, 1,000 clients": ("logistic", {"data": "a9a", "clients": 1000}),
}
NETWORKS = {
    "MLP on digits, 10 clients": {"model": "mlp"},
    "MLP on digits, 100 clients": {"model": "mlp", "clients": 100},
}


def exact(problem: ud.Problem) -> dict[str, float]:
    """The constants by name."""
    if not isinstance(problem, ud.problems.Logistic):
        return dataclasses.asdict(problem.constants)
    optimum = problem.optimum
    assert optimum is not None
    table, held = problem.rows.numpy(), zip(problem.held.first, problem.held.sizes, strict=True)
    mine = [table[first : first + size] for first, size in held]
    scale, ridge = problem.clients / problem.total, problem.l2 * np.eye(problem.dim)
    found, gaps = list[tuple[float, ...]](), np.empty(0)
    for x in (problem.start().numpy(), optimum.numpy()):
        share = [1 / (1 + np.exp(-a @ x)) for a in mine]
        each = [scale * (a.T * (s * (1 - s))) @ a + ridge for a, s in zip(mine, share, strict=True)]
        mean = np.mean(each, 0)
        ends = np.array([np.linalg.eigvalsh(one)[[0, -1]] for one in [mean, *each]])
        found.append((ends[1:, 1].max(), -ends[1:, 0].min(), ends[0, 1], -ends[0, 0]))
        gaps = np.array([one - mean for one in each])
    L, mu, L_mean, mu_mean = np.abs(np.max(found, 0))
    square = np.linalg.eigvalsh(sum(gap @ gap for gap in gaps) / len(gaps))[-1]
    delta_B = max(np.abs(np.linalg.eigvalsh(gap)).max() for gap in gaps)
    names = "L", "mu", "L_mean", "mu_mean", "delta_A", "delta_B"
    return dict(zip(names, (L, mu, L_mean, mu_mean, square**0.5, delta_B), strict=True))


def main() -> None:
    torch.set_num_threads(1)
    print("| problem | L | mu | its bar | delta_A | delta_B | gradients a client | seconds |")
    print("|---|---|---|---|---|---|---|---|")
    for title, (name, parameters) in EXACT.items():
        worst, bar, spent, slowest = dict[str, float](), 0.0, 0.0, 0.0
        for seed in SEEDS:
            problem = ud.problems.build(name, **parameters, seed=seed)
            known = exact(problem)  # the minimiser, which it finds, is not counted
            began = time.process_time()
            found = ud.estimate(problem, seed=seed)
            slowest = max(slowest, time.process_time() - began)
            spent = max(spent, found.gradients / problem.clients)
            for field, value in known.items():
                far = abs(getattr(found.constants, field) / value - 1)
                worst[field] = max(worst.get(field, 0.0), far)
            bar = max(
                bar, found.errors["mu"] / known["mu"], found.errors["mu_mean"] / known["mu_mean"]
            )
        both = {
            "L": max(worst["L"], worst["L_mean"]),
            "mu": max(worst["mu"], worst["mu_mean"]),
            "bar": bar,
            **{name: worst[name] for name in ("delta_A", "delta_B")},
        }
        shares = " | ".join(f"{100 * far:.1f} %" for far in both.values())
        print(f"| {title} | {shares} | {spent:.0f} | {slowest:.1f} |", flush=True)
    for title, parameters in NETWORKS.items():
        problem = ud.problems.build("images", data="digits", **{"clients": 10} | parameters)
        began = time.process_time()
        found = ud.estimate(problem)
        print(f"\n{title}, {problem.dim:,} parameters, {time.process_time() - began:.1f} s")
        print(repr(found), flush=True)


if __name__ == "__main__":
    main()
