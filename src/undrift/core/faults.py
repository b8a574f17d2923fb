"""What goes wrong on purpose, and how bad work is dealt with: declared in a spec, replayable."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Literal, NamedTuple

from undrift.core.params import (
    Count,
    Fraction,
    Natural,
    Positive,
    Probability,
    Range,
    Record,
    Refusal,
)
from undrift.core.streams import Streams

if TYPE_CHECKING:
    import numpy as np

Kind = Literal[
    "nan", "inf", "scale", "flip", "stale", "drop-before", "drop-after", "late", "label-noise"
]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Fault(Record):
    """What some clients do wrong: a pure function of the seed, the round, the client and the phase.

    Args:
        kind: nan, inf: every number of an upload is that; scale: an upload is multiplied by
            factor; flip: its sign is changed; stale: a client sends its last upload again;
            drop-before: it does not take part in a round; drop-after: it works, and its upload is
            lost; late: its upload comes after the round, and does not count; label-noise: some of
            its training samples are labelled as another class, the same ones in all rounds.
        clients: their numbers; left out: all of them, or a share.
        share: of all clients, drawn once.
        rate: probability that it happens to such a client, in each round and phase anew; of
            label-noise: to each of its samples.
        since: the first round in which it may happen.
        until: the first round in which it no longer does.
        phase: of the round, from 0; left out: every phase. Drop-outs before work are for a round.
        factor: of scale.
    """

    owner = "faults"

    kind: Kind
    clients: list[Natural] | None = None
    share: Fraction | None = None
    rate: Probability = 1.0
    since: Natural = 0
    until: Count | None = None
    phase: Natural | None = None
    factor: Positive = 1e30

    def conditions(self) -> dict[str, str]:
        if self.clients is not None and self.share is not None:
            return {"share": "give clients or a share of them, not both"}
        if self.kind != "label-noise":
            return {}
        given = {"since": self.since or None, "until": self.until, "phase": self.phase}
        text = "labels are wrong in all rounds and phases: leave it out"
        return {name: text for name, value in given.items() if value is not None}

    def refuse(self, clients: int, labelled: bool) -> Iterator[Refusal]:
        """Why it cannot happen among ``clients``, whose samples have labels or not."""
        if unknown := [number for number in self.clients or () if number >= clients]:
            text = f"client {unknown[0]} does not exist: there are {clients}, counted from 0"
            yield Refusal("clients", text)
        if self.kind == "label-noise" and not labelled:
            yield Refusal("kind", "the samples of this problem have no labels to change")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Judging(Record):
    """Whose work counts, and when a run gives up.

    Args:
        norm: an upload longer than this many times the median of its phase, now or at first, does
            not count, where a round can do without its client; off: uploads of any length do.
        patience: a run ends when more than so many rounds in a row could not be counted.
    """

    owner = "judge"

    norm: Annotated[float, Range(1)] | Literal["off"] = 1e6
    patience: Natural = 10


class Rejection(NamedTuple):
    """A client whose work did not count in one round, and the phase that showed it."""

    round: int
    """Rounds completed before it, as ``since`` and ``until`` count them."""
    phase: int
    client: int
    reason: str


class Faults:
    """The faults of a run among ``total`` clients."""

    def __init__(self, faults: Sequence[Fault], streams: Streams, total: int):
        self._faults, self._streams = faults, streams
        self._who = [_affected(k, fault, streams, total) for k, fault in enumerate(faults)]
        self._coin = streams.along("faults")

    def dropped(self, round: int, members: Sequence[int]) -> list[int]:
        """Those of ``members`` that do not take part in a round."""
        return list(self._struck(("drop-before",), round, None, members))

    def at(self, round: int, phase: int, members: Sequence[int]) -> Mapping[int, Fault]:
        """What happens to the uploads of a phase, by client; the first of several faults counts."""
        kinds = ("nan", "inf", "scale", "flip", "stale", "drop-after", "late")
        return self._struck(kinds, round, phase, members)

    def stale(self) -> set[int]:
        """Clients whose last uploads are kept, to be sent again."""
        found = zip(self._faults, self._who, strict=True)
        return {client for fault, who in found if fault.kind == "stale" for client in who}

    @property
    def mislabels(self) -> bool:
        """Whether clients train on wrong labels."""
        return any(fault.kind == "label-noise" for fault in self._faults)

    def label_noise(self, samples: Sequence[int]) -> dict[int, np.ndarray]:
        """What ``Problem.with_label_noise`` takes, where clients have so many samples."""
        import numpy as np

        found: dict[int, np.ndarray] = {}
        for k, (fault, who) in enumerate(zip(self._faults, self._who, strict=True)):
            for client in sorted(who) if fault.kind == "label-noise" else ():
                rng, count = self._streams.at("labels", client=client, step=k), samples[client]
                chosen, classes = rng.random(count) < fault.rate, rng.random(count)
                before = found.get(client, np.full(count, -1.0))
                found[client] = np.where(chosen & (before < 0), classes, before)
        return found

    def _struck(
        self, kinds: Sequence[str], round: int, phase: int | None, members: Sequence[int]
    ) -> dict[int, Fault]:
        struck: dict[int, Fault] = {}
        for k, (fault, who) in enumerate(zip(self._faults, self._who, strict=True)):
            over = fault.until is not None and round >= fault.until
            elsewhere = phase is not None and fault.phase not in (None, phase)
            if fault.kind not in kinds or round < fault.since or over or elsewhere:
                continue
            for client in members:
                if client in who and client not in struck:
                    place = 64 * k + (phase or 0)
                    if fault.rate == 1 or self._coin(round, client, place).random() < fault.rate:
                        struck[client] = fault
        return struck


def _affected(k: int, fault: Fault, streams: Streams, total: int) -> frozenset[int]:
    if fault.share is None:
        return frozenset(range(total) if fault.clients is None else fault.clients)
    chosen = streams.at("faulty", k).permutation(total)[: round(fault.share * total)]
    return frozenset(chosen.tolist())
