"""What the seeds of a run vary, in words: a spread says little without it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from undrift.problems import named as catalog
from undrift.spec.schema import USUAL


def varied(document: Mapping[str, Any]) -> str:
    """What differs from seed to seed in the run of a spec, and what does not.

    >>> problem = {"name": "images", "augment": "none"}
    >>> varied({"problem": problem, "cohort": {"size": 5}, "batch": 16})
    'cohorts, mini-batches and other draws (same split, same first weights)'
    >>> varied({"problem": problem, "batch": 16, "vary": ["split", "start"]})
    'splits and first weights (same mini-batches and other draws)'
    """
    vary = document.get("vary", USUAL["vary"])
    words = {
        "draws": _draws(document),
        **{part: [word] for part, word in _chance(document).items()},
    }
    several = {"split": "splits"}
    parts = [word for part in words if part in vary for word in words[part]]
    fixed = [f"same {_listed(words[part])}" for part in words if part not in vary]
    return _listed([several.get(word, word) for word in parts]) + f" ({', '.join(fixed)})" * bool(
        fixed
    )


def _draws(document: Mapping[str, Any]) -> list[str]:
    """What a run draws: by its settings, and coins, picks or masks by its methods and networks."""
    batch, problem = document.get("batch") is not None, document.get("problem", {})
    found = [
        *["cohorts"] * bool(document.get("cohort")),
        *["mini-batches"] * batch,
        *["augmentation"] * (batch and problem.get("augment", "none") != "none"),
    ]
    return [*found, "other draws"] if found else ["random draws"]


def _chance(document: Mapping[str, Any]) -> Mapping[str, str]:
    """What else a seed could decide."""
    try:
        return catalog.find(str(document.get("problem", {}).get("name")))[0].chance
    except ValueError:  # a problem of another version
        return {}


def _listed(words: Sequence[str]) -> str:
    return " and ".join(filter(None, (", ".join(words[:-1]), words[-1]))) if words else "nothing"
