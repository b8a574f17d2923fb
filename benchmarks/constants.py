"""Estimated constants against exact ones: python -m benchmarks.constants."""

import dataclasses
import time

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


def off(problem: ud.Problem, found: ud.Estimates) -> dict[str, float]:
    """By name, how far an estimate is off, relative to the exact constant."""
    known = dataclasses.asdict(problem.constants)
    return {name: abs(getattr(found.constants, name) / value - 1) for name, value in known.items()}


def main() -> None:
    torch.set_num_threads(1)
    print("| problem | L | mu | delta_A | delta_B | gradients a client | seconds |")
    print("|---|---|---|---|---|---|---|")
    for title, (name, parameters) in EXACT.items():
        worst, spent, slowest = dict[str, float](), 0.0, 0.0
        for seed in SEEDS:
            problem = ud.problems.build(name, **parameters, seed=seed)
            problem.metrics(problem.start())  # the minimiser is not counted
            began = time.process_time()
            found = ud.estimate(problem, seed=seed)
            slowest = max(slowest, time.process_time() - began)
            spent = max(spent, found.gradients / problem.clients)
            for field, far in off(problem, found).items():
                worst[field] = max(worst.get(field, 0.0), far)
        both = {
            "L": max(worst["L"], worst["L_mean"]),
            "mu": max(worst["mu"], worst["mu_mean"]),
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
