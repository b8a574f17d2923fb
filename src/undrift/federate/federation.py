"""The federation of a spec: its problem, its run, and its metrics, over a session of Flower's."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeGuard, get_args

import torch
from torch import Tensor

from undrift.core.params import values
from undrift.core.problem import Constants, Facts, Problem, Samples, taken
from undrift.core.stopping import EVERYBODY, MEASURED
from undrift.engines.federated import Federated, Refused, Remote
from undrift.engines.messages.format import dump, parse
from undrift.engines.messages.packet import Packet
from undrift.engines.options import FederatedOptions
from undrift.flower.compat import NoFederation
from undrift.flower.exchange import About, Carrier, ClientExchange, needs_all
from undrift.flower.network import agreed, start_of, state_of
from undrift.models.layout import StateDict
from undrift.objectives import Objective
from undrift.records.models import MOST
from undrift.runs.events import Began, Event
from undrift.runs.prepare import build_all
from undrift.spec.errors import Complaint
from undrift.spec.schema import Spec

Weighed = tuple[float, int]
"""A number, and how much it counts in the mean of several."""


class FlowerFederation(ClientExchange):
    """The clients of a spec, on nodes that have joined a SuperLink."""

    def __init__(
        self,
        session: Carrier,
        spec: Spec,
        tell: Callable[[str], None],
        keys: Mapping[str, str] | None = None,
    ):
        options = spec.engine
        assert isinstance(options, FederatedOptions)
        super().__init__(session, spec.problem.clients, options, tell)
        self.spec, self.keys = spec, keys or {}
        self._run: dict[str, Any] = {"label": spec.entries[0].label}
        """Which method of the spec is run, with what theory prescribed, and the seed."""
        self._data: tuple[str | None, ...] = ()
        """The digests of the clients' data, as they were when everybody had joined."""
        self._know(())

    def _know(self, samples: Sequence[int]) -> None:
        """Tell the spec, and how many samples every client has."""
        self._samples = tuple(samples)
        # Digests alone: a node runs its owner's copy of a file, never one that is sent to it.
        files = {n: hashlib.sha256(text).hexdigest() for n, text in self.spec.sources.items()}
        once = {"spec": self.spec.toml(), "files": files, "samples": self._samples}
        self.tell_once(json.dumps(once).encode())

    def greeting(self) -> Packet:
        needs = any(entry.method.open_fields() for entry in self.spec.entries)
        return self.referring(Packet({"do": "hello", "constants": needs}), True)

    def about_run(self, client: int) -> About:
        return {**self._run, "client": client, "data": self._data[client]}

    # -- the problem ----------------------------------------------------------------------------

    def build(
        self, spec: Spec, seed: int, complaints: list[Complaint]
    ) -> dict[Objective | None, Problem]:
        """The problems of a spec, whose data are with the clients."""
        if spec.anew:
            text = "a federation has the data that it has: leave out vary"
            complaints.append(spec.origin.complaint(("vary",), text))
        for i, entry in enumerate(spec.entries):
            if self.options.absent == "drop" and needs_all(entry.method):
                text = f"{entry.label} needs every client in every round: absent = 'wait'"
                complaints.append(spec.complaint(i, "name", text))
        if complaints:
            return {}
        said = self.gather()
        self._data = tuple(about["digest"] for about in said)
        parts = ["part" in about for about in said]
        if all(parts):
            return self._shared(spec, seed, said, complaints)
        if any(parts):
            raise NoFederation("some nodes have data of their own, others joined with --part")
        return self._own(spec, said)

    def _shared(
        self,
        spec: Spec,
        seed: int,
        said: Sequence[About],
        complaints: list[Complaint],
    ) -> dict[Objective | None, Problem]:
        """Everybody can build the problem, the server too."""
        problems = build_all(spec, seed, complaints)
        if complaints:
            return {}
        # Before anything is trained: a node with other data would only pull the model elsewhere.
        first = problems[spec.entries[0].objective].digest()
        for client, about in enumerate(said):
            if about["digest"] != first:
                raise NoFederation(
                    f"{self.who(client)} has other data than this machine: give both the same"
                )
        self._know(next(iter(problems.values())).samples)
        return {
            objective: Remote(whole.facts, self, whole.digest(), whole)
            for objective, whole in problems.items()
        }

    def _own(self, spec: Spec, said: Sequence[About]) -> dict[Objective | None, Problem]:
        """Every client has data that nobody else sees."""
        for field in ("dim", "dtype", "classes"):
            different = {json.dumps(about[field]) for about in said}
            if len(different) > 1:
                listed = ", ".join(f"{self.who(i)}: {about[field]}" for i, about in enumerate(said))
                remedy = (
                    "look at the files that differ first: labels = [...] and features = N are for "
                    "classes that a client never has, and for last columns that are zero there"
                )
                raise NoFederation(f"the clients do not have the same {field} ({listed}); {remedy}")
        for client, about in enumerate(said):
            if not isinstance(about["samples"], int) or about["samples"] < 1:
                raise NoFederation(
                    f"{self.who(client)} says that it has {about['samples']!r} samples"
                )
        self._know([about["samples"] for about in said])
        x, state = self._first_point(said)
        digest = hashlib.sha256(" ".join(str(about["digest"]) for about in said).encode())
        facts = Facts(
            clients=len(said),
            dim=len(x),
            samples=self._samples,
            dtype=getattr(torch, said[0]["dtype"]),
            device=torch.device("cpu"),
            remembers=False,
            differentiates=bool(said[0]["differentiates"]),
            first=x,
            constants=Constants(
                L=_extreme(max, [about.get("L") for about in said]),
                mu=_extreme(min, [about.get("mu") for about in said]),
            ),
        )
        measured_on = [about.get("metric_samples") for about in said]
        of = next((one for one in get_args(Samples) if measured_on == [one] * len(said)), None)
        found: dict[Objective | None, Problem] = {}
        for entry in spec.entries:
            needs = () if entry.objective is None else entry.objective.needs
            its = dataclasses.replace(facts, remembers="previous" in needs)
            found[entry.objective] = Remote(
                its,
                self,
                digest.hexdigest(),
                samples=of,
                by_name=None if state is None else state.at,
            )
        return found

    def _first_point(self, said: Sequence[About]) -> tuple[Tensor, StateDict | None]:
        """Where a run begins and, if clients have described a network, its tensors by name."""
        network = agreed([about["network"] for about in said], self.who)
        dtype, found = getattr(torch, said[0]["dtype"]), list[tuple[Tensor, StateDict | None]]()

        def accept(client: int, reply: Packet) -> None:
            tensors = parse(reply.content, MOST)
            state = None if network is None else state_of(network, tensors)
            found.append((tensors["x"] if state is None else start_of(state, dtype), state))

        # One client's start is everybody's: models that begin apart have no mean worth having.
        self.exchange({0: Packet({"do": "start"})}, accept, True)
        return found[0]

    # -- one phase ------------------------------------------------------------------------------

    def hear(self, event: Event) -> None:
        """Note which method of the spec comes next."""
        if isinstance(event, Began):
            self._run["label"] = event.label

    def begin(self, engine: Federated, seed: int) -> None:
        self._run |= {"values": values(engine.method), "seed": seed}

    def evaluate(self, problem: Remote, x: Tensor) -> dict[str, float]:
        if problem.whole is not None:
            return problem.whole.metrics(x)
        metrics: dict[int, dict[str, Weighed]] = {}
        asked = Packet({"do": "evaluate"}, dump({"x": x.detach().cpu()}))

        def accept(client: int, reply: Packet) -> None:
            if "unsound" in reply.table:
                raise Refused(str(reply.table["unsound"]))
            others = next(iter(metrics.values()), None)
            metrics[client] = _metrics(reply.table, self._samples[client], others)

        self.ask(dict.fromkeys(range(self.clients), asked), accept)
        # Answers come in any order; sums taken in that order would differ from run to run.
        metrics = {client: metrics[client] for client in sorted(metrics)}
        alone: dict[str, Tensor] = {}
        for name in next(iter(metrics.values()), {"loss": None}):
            known = [metrics[c][name][0] if c in metrics else math.nan for c in range(self.clients)]
            alone[name] = torch.tensor(known, dtype=torch.float64)
        problem.reported = x.clone(), alone
        return self._means(metrics)

    def _means(self, metrics: Mapping[int, Mapping[str, Weighed]]) -> dict[str, float]:
        """The means over those that were measured, as one machine with all data has them."""
        found: dict[str, float] = {} if metrics else {"loss": math.nan}
        for name in next(iter(metrics.values()), {}):
            numbers = [one[name] for one in metrics.values()]
            total = sum(weight for _, weight in numbers)
            terms = [value * (weight / total) for value, weight in numbers]
            found[name] = math.fsum(terms) if all(map(math.isfinite, terms)) else sum(terms)
        if len(metrics) < self.clients:
            found |= {MEASURED: len(metrics), EVERYBODY: self.clients}
        return found


def _metrics(
    table: Mapping[str, object], samples: int, others: Mapping[str, Weighed] | None
) -> dict[str, Weighed]:
    """What a node says of its own data; numbers may be infinite or NaN, where the model is bad."""
    given, weights = table.get("metrics"), table.get("weights")
    if not (
        table.get("samples") == samples
        and isinstance(given, Mapping)
        and isinstance(weights, Mapping)
        and "loss" in given
        and given.keys() == weights.keys()
        and (others is None or given.keys() == others.keys())
        and not any(map(taken, given))
        and all(type(weight) is int and weight >= 1 for weight in weights.values())
        and all(map(_is_number, given.values()))
    ):
        raise Refused(
            f"a node with {samples} samples says their loss and what all others say, each a number "
            f"with the samples that it counts for; this one says {json.dumps(table)[:300]}"
        )
    return {name: (float(value), weights[name]) for name, value in given.items()}


def _is_number(given: object) -> TypeGuard[int | float]:
    """No truth value, and no whole number that is too large for a float."""
    return isinstance(given, float) or (type(given) is int and abs(given) < 2**1000)


def _extreme(choose: Callable[..., float], found: Sequence[float | None]) -> float | None:
    known = [value for value in found if value is not None]
    return choose(known) if len(known) == len(found) else None
