"""Settings drawn from spaces: at random, or by Optuna from how earlier ones did."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from random import Random

from undrift.core.method import Method
from undrift.core.params import BadParameters
from undrift.spec.space import Space, Tuning, whole
from undrift.sweeps.search import Search, Setting

TOGETHER = 8
"""Settings that Optuna is asked for at a time: they run side by side."""
OPTUNA = {"tpe": "TPESampler", "gp": "GPSampler", "qmc": "QMCSampler"}


def explore(search: Search, space: Space, kind: type[Method], tuning: Tuning) -> None:
    """Try ``tuning.samples`` settings of ``space``."""

    def at(share: Callable[[str], float]) -> Setting:
        return tuple((n, whole(n, kind, some.at(share(n)))) for n, some in space.items())

    if tuning.sampler == "random":
        rng = Random(tuning.seeds[0])
        search.run([at(lambda _: rng.random()) for _ in range(tuning.samples)])
        return
    try:
        import optuna
    except ImportError:
        text = f"sampler {tuning.sampler} needs Optuna: pip install 'undrift[optuna]'"
        raise BadParameters("tune", {"sampler": text}) from None
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    sampler = getattr(optuna.samplers, OPTUNA[tuning.sampler])(seed=tuning.seeds[0])
    study, left = optuna.create_study(sampler=sampler), tuning.samples
    while left > 0 and not search.over():
        asked = [study.ask() for _ in range(min(TOGETHER, left))]
        settings = [at(partial(trial.suggest_float, low=0.0, high=1.0)) for trial in asked]
        search.run(settings)
        left -= len(asked)
        # Ranks, as late, diverged and given up runs have no number that could be compared.
        order = sorted(search.tried, key=lambda setting: search.badness(search.tried[setting]))
        for trial, setting in zip(asked, settings, strict=True):
            study.tell(trial, order.index(setting) / len(order))
