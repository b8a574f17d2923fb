"""What the seeds of a run vary, in words: a spread says little without it."""

from __future__ import annotations

from collections.abc import Sequence

from undrift.problems import named as catalog
from undrift.spec.schema import Table


def varied(document: Table) -> str:
    """What differs from seed to seed in the run of a spec, and what does not.

    >>> problem = {"name": "images", "augment": "none"}
    >>> varied({"problem": problem, "cohort": {"size": 5}, "batch": 16})
    'cohorts, mini-batches and other draws (same split, same first weights)'
    >>> varied({"problem": problem, "batch": 16, "vary": ["split", "start"]})
    'splits and first weights (same mini-batches and other draws)'
    """
    vary, problem = document.get("vary", ["draws"]), document.get("problem", {})
    words = {"draws": _draws(document, problem)}
    if "file" in problem and "seed" in problem:
        words["split"] = ["data"]
    try:
        kind, _ = catalog.find(str(problem.get("name")))
        words |= {part: [word] for part, word in kind.chance.items()}
    except ValueError:  # a problem of another version
        pass
    parts = [word for part in words if part in vary for word in words[part]]
    fixed = [f"same {_listed(words[part])}" for part in words if part not in vary]
    text = _listed(["splits" if word == "split" else word for word in parts])
    return f"{text} ({', '.join(fixed)})" if fixed else text


def _draws(document: Table, problem: Table) -> list[str]:
    """What a run draws: by its settings; coins, picks or masks by its methods and networks."""
    found = []
    if document.get("cohort"):
        found.append("cohorts")
    if document.get("batch") is not None:
        found.append("mini-batches")
        if problem.get("augment", "none") != "none":
            found.append("augmentation")
    return [*found, "other draws"] if found else ["random draws"]


def _listed(words: Sequence[str]) -> str:
    *others, last = words or ["nothing"]
    return f"{', '.join(others)} and {last}" if others else last
