"""What the seeds of a run vary, in words: a spread says little without it."""

from __future__ import annotations

from contextlib import suppress

from undrift.problems import named as catalog
from undrift.spec.schema import Table


def varied(document: Table) -> str:
    """What differs from seed to seed in the run of a spec, and what does not.

    >>> varied({"problem": {"name": "images"}})
    'random draws (same split, same first weights)'
    >>> varied({"problem": {"name": "images"}, "vary": ["split", "start"]})
    'split and first weights (same random draws)'
    """
    vary, problem = document.get("vary", ["draws"]), document.get("problem", {})
    words = {"draws": "random draws"}
    if "file" in problem:
        words |= {"split": "data"} if "seed" in problem else {}
    else:
        with suppress(ValueError):  # a problem of another version
            words |= catalog.find(str(problem.get("name")))[0].chance
    text = " and ".join(word for part, word in words.items() if part in vary)
    fixed = ", ".join(f"same {word}" for part, word in words.items() if part not in vary)
    return f"{text} ({fixed})" if fixed else text
