"""Settings drawn from spaces: at random, or by Optuna from how earlier ones did."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING

from undrift.core.method import Method
from undrift.core.params import BadParameters
from undrift.spec.space import Several, Space, Tuning, whole
from undrift.sweeps.search import Search, Setting

if TYPE_CHECKING:
    from optuna.distributions import BaseDistribution

TOGETHER = 8
"""Settings that Optuna is asked for at a time: they run side by side."""
OPTUNA = {"tpe": "TPESampler", "gp": "GPSampler", "qmc": "QMCSampler"}


def explore(search: Search, space: Space, kind: type[Method], tuning: Tuning) -> None:
    """Try ``tuning.samples`` settings of ``space``."""
    if tuning.sampler != "random":
        _ask(search, space, kind, tuning)
        return
    rng = Random(tuning.seeds[0])
    search.run([_drawn(space, kind, rng) for _ in range(tuning.samples)])


def _drawn(space: Space, kind: type[Method], rng: Random) -> Setting:
    return tuple((name, whole(name, kind, some.draw(rng))) for name, some in space.items())


def _ask(search: Search, space: Space, kind: type[Method], tuning: Tuning) -> None:
    """Try what a sampler of Optuna asks for, several at a time."""
    try:
        import optuna
    except ImportError:
        text = f"sampler {tuning.sampler} needs Optuna: pip install 'undrift[optuna]'"
        raise BadParameters("tune", {"sampler": text}) from None
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    sampler = getattr(optuna.samplers, OPTUNA[tuning.sampler])(seed=tuning.seeds[0])
    study = optuna.create_study(sampler=sampler)
    known = {name: _distribution(some) for name, some in space.items()}
    for first in range(0, tuning.samples, TOGETHER):
        asked = [study.ask(known) for _ in range(min(TOGETHER, tuning.samples - first))]
        settings: list[Setting] = []
        for trial in asked:
            chosen = {name: float(f"{trial.params[name]:.6g}") for name in space}
            settings.append(tuple((n, whole(n, kind, v)) for n, v in chosen.items()))
        search.run([setting for setting in settings if setting not in search.tried])
        # Ranks, as late, diverged and given up runs have no number that could be compared.
        order = sorted(search.tried, key=lambda setting: search.badness(search.tried[setting]))
        for trial, setting in zip(asked, settings, strict=True):
            study.tell(trial, order.index(setting) / len(order))
        if search.limits.over(search.gradients):
            return


def _distribution(some: Several) -> BaseDistribution:
    """A space as Optuna has it."""
    from optuna.distributions import CategoricalDistribution, FloatDistribution

    if some.values is not None:
        return CategoricalDistribution(some.values)
    low, high = some.ends
    return FloatDistribution(low, high, log=some.log is not None)
