"""A part of a run: one of several even shares of its methods and seeds."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import NamedTuple, Self

from undrift.core.params import BadParameters, not_allowed
from undrift.records.rows import Key

PART = "part"
"""The key of environment.json with the part that the folder has: its number, and how many."""


class RunPart(NamedTuple):
    """The ``number``-th of so many parts; the only one is the whole run."""

    number: int = 1
    of: int = 1

    @classmethod
    def read(cls, given: str | Sequence[int]) -> Self:
        """From "2/4", or two numbers."""
        with suppress(TypeError, ValueError):
            number, of = map(int, given.split("/") if isinstance(given, str) else given)
            if 1 <= number <= of:
                return cls(number, of)
        text = "give which one of how many, as 2/4; in Python (2, 4)"
        raise BadParameters("run", {PART: not_allowed(PART, given, text)})

    def __str__(self) -> str:
        return f"part {self.number} of {self.of}"

    def folder(self, name: str) -> str:
        """What the folder of this part is called, of a run with a ``name``."""
        return f"{name}-part-{self.number}-of-{self.of}" if self.of > 1 else name

    def deal(self, labels: Sequence[str], seeds: Sequence[int]) -> list[Key]:
        """What this part has of all labels and seeds, in the order it is run in.

        Parts differ by one at most. As long as there is one for every part, a method is dealt with
        all its seeds: if none of them changes it, it is run once.

        >>> RunPart(1, 2).deal(["a", "b", "c"], [0, 1]), RunPart(2, 2).deal(["a", "b", "c"], [0, 1])
        ([('a', 0), ('c', 0), ('a', 1)], [('b', 0), ('b', 1), ('c', 1)])
        """
        whole = len(labels) - len(labels) % self.of
        places = {
            (label, seed): i if i < whole else (i - whole) * len(seeds) + j
            for j, seed in enumerate(seeds)
            for i, label in enumerate(labels)
        }
        return [key for key, place in places.items() if place % self.of == self.number - 1]


WHOLE = RunPart()
