"""What every engine does: the clock, the cohorts, the phases, the ledger. How a phase is carried
out differs.
"""

from __future__ import annotations

import abc
import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from undrift._device import upload
from undrift.core.cohort import Cohort, Sampling, sampling
from undrift.core.method import Method, Round
from undrift.core.params import BadParameters, plain
from undrift.core.problem import Problem
from undrift.core.streams import Streams
from undrift.core.struct import State
from undrift.engines.arguments import first_point, refusals
from undrift.engines.batches import Batches, keys
from undrift.engines.options import Options


@dataclasses.dataclass
class Ledger:
    """What has been spent so far. Vectors are per participating client, bytes and gradients are
    totals.

    Vectors are those that a method declares to send, each of them whole; bytes are those that
    travel, which for a
    ``Sparse`` vector are its non-zero entries and their places where that is less.
    """

    vectors_up: int = 0
    vectors_down: int = 0
    bytes_up: int = 0
    bytes_down: int = 0
    gradients: int = 0
    iterations: int = 0
    syncs: int = 0


class Plan(NamedTuple):
    """A round: the local steps of every client and the most of them, its phases, and how often
    local work repeats.
    """

    steps: Sequence[int]
    most: int
    phases: list[Any]
    blocks: int


class Engine(abc.ABC):
    """Runs one method on one problem, phase by phase.

    ``steps`` is the number of local steps, for all clients or one number each; ``cohort`` the
    number of clients
    sampled per round, or how they are sampled (all when ``None``; a table is that of a
    :class:`undrift.core.cohort.Sampling`); ``batch`` the mini-batch size (all samples when
    ``None``); ``epochs`` takes the place of ``steps`` and means as many passes over a client's
    samples;
    ``options`` are those of :class:`undrift.engines.options.Options`.
    """

    def __init__(
        self,
        method: Method,
        problem: Problem,
        *,
        steps: int | Sequence[int] = 1,
        cohort: int | Sampling | Mapping[str, Any] | None = None,
        batch: int | None = None,
        epochs: int | None = None,
        seed: int = 0,
        x0: Any = None,
        **options: Any,
    ):
        steps, batch, epochs, seed = map(plain, (steps, batch, epochs, seed))
        given = {
            "steps": steps,
            "cohort": cohort,
            "batch": batch,
            "epochs": epochs,
            "seed": seed,
            **options,
        }
        problems = refusals(method, problem, given)
        if isinstance(problem, str):
            problems["problem"] = (
                f"problem = {problem!r} is not allowed: an engine takes a Problem, undrift.run a name"
            )
        if problems:
            raise BadParameters(type(self).__name__, problems)
        n = problem.clients
        self.method, self.problem, self.options = method, problem, Options(**options)
        self.steps = [steps] * n if isinstance(steps, int) else list(steps)
        if epochs is not None and batch is not None:
            self.steps = [epochs * -(-count // batch) for count in problem.samples]
        self.cohort = sampling(cohort) or Sampling(n)
        reasons = method.refuse(n, self.cohort, self.steps, self.options.weights)
        if reasons := reasons + method.refuse_decay(self.options.decay):
            raise BadParameters(type(self).__name__, dict(reasons))
        if open_fields := method.open_fields():
            raise ValueError(
                f"{type(method).__name__}: {', '.join(open_fields)} must be set before an engine runs it"
            )
        self.streams = Streams(seed)
        self.x0 = first_point(x0, problem)
        self.batches = None
        if batch is not None:
            self.batches = Batches(self.streams, problem, batch, epochs is not None)
        self.round = self.phase = 0
        self.ledger = Ledger()
        self.server: State = method.server(self.x0)
        self._ends: list[Tensor] = []
        self._everyone = np.arange(n)
        self._fixed: Plan | None = None
        self._counted = 0, 0
        self._most = max(self.steps)
        self._weights = None
        if self.options.weights == "samples":
            self._weights = torch.tensor(
                problem.samples, dtype=self.x0.dtype, device=self.x0.device
            )

    @property
    def x(self) -> Tensor:
        """The server's model."""
        return self.method.point(self.server)

    @property
    def ends(self) -> Tensor | None:
        """The local models ``[C, d]`` of this round, put together when somebody asks; ``None``
        where it made none.
        """
        return torch.cat(self._ends) if self._ends else None

    @property
    def drift(self) -> float | None:
        """Mean squared distance of this round's local models to the server's; ``None`` where it
        made none.
        """
        ends = self.ends
        return None if ends is None else float((ends - self.x).square().sum(-1).mean())

    @property
    def blocks_before(self) -> int:
        """Blocks of local work in the rounds before this one: like a round's own, a pure function
        of the seed.
        """
        counted, blocks = self._counted
        blocks += sum(
            self.method.blocks(self._begin(number)) for number in range(counted, self.round)
        )
        self._counted = self.round, blocks
        return blocks

    def advance(self) -> None:
        """One phase."""
        plan = self._plan()
        if self.phase == 0:
            self._ends = []
        phase, self.blocks = plan.phases[self.phase], plan.blocks
        cohort, steps = self._members(phase, plan)
        picked = None
        if phase.reduction == "pick":
            picked = int(self.streams.at("pick", self.round, step=self.phase).integers(cohort.size))
        with torch.no_grad() if self.problem.differentiates else torch.inference_mode():
            up = self.exchange(phase, cohort, steps, picked)
            self.server = phase.merge(self.server, up, cohort)
        self._book(phase, cohort, 1 if picked is not None else cohort.size)
        self.phase += 1
        if self.phase == len(plan.phases):
            self.phase = 0
            self.round += 1
            self.ledger.iterations += plan.most * self.blocks
            self.server = self.server.lasting()
            self.forget()

    def phases(self, method: Method, now: Round) -> list[Any]:
        """The exchanges of a round."""
        return method.phases(now)

    def run_round(self) -> None:
        """The phases left of this round."""
        target = self.round + 1
        while self.round < target:
            self.advance()

    @abc.abstractmethod
    def exchange(self, phase: Any, cohort: Cohort, steps: list[int], picked: int | None) -> Any:
        """Carry out ``send`` and ``work`` for the cohort; return the reduced uploads.

        Books the gradients and the bytes of ``Sparse`` vectors in the ledger, keeps the local
        models in ``ends``, and
        renews the clients' states.
        ``picked`` is the position in the cohort of the only client that uploads, where the
        reduction is ``pick``.
        """

    def drawn(self, members: Sequence[int] | np.ndarray, step: int) -> tuple[Any, ...]:
        """What a local step's gradient takes beside the point: a mini-batch, and the keys of what
        is dropped.
        """
        batch = () if self.batches is None else self.batches.draw(members, self.round, step)
        if not self.problem.drops:
            return batch
        return (
            *batch,
            *(None,) * (2 - len(batch)),
            keys(self.streams, self.problem.device, members, self.round, step),
        )

    @abc.abstractmethod
    def forget(self) -> None:
        """Drop the clients' scratch vectors at the end of a round."""

    @abc.abstractmethod
    def client_tensors(self) -> dict[str, Tensor]:
        """The clients' states: ``client.NAME [N, d]``, in mid-round ``scratch.NAME`` and
        ``scratch_members``;

        and ``client_previous`` where the problem remembers the clients' last local models.
        """

    def client_parts(self) -> dict[str, Any]:
        """The same for reading before the next phase; a vector of all clients may be a sequence of
        its blocks.
        """
        return self.client_tensors()

    @abc.abstractmethod
    def load_clients(self, tensors: dict[str, Tensor]) -> None:
        """The inverse of ``client_tensors``; ``tensors`` are copied, from whatever device."""

    def snapshot(self, lasting: bool = True) -> tuple[dict[str, Any], dict[str, Any]]:
        """All that a continuation needs: tensors by name, and counters. If not ``lasting``, see
        ``client_parts``.
        """
        tensors = {f"server.{name}": v for name, v in self.server.items()}
        tensors |= self.client_tensors() if lasting else self.client_parts()
        return tensors, {
            "round": self.round,
            "phase": self.phase,
            **dataclasses.asdict(self.ledger),
        }

    def restore(self, tensors: dict[str, Tensor], counters: dict[str, Any]) -> None:
        """Continue from a snapshot; one that does not fit the method's declared states is refused."""
        state, declared = self.method.Server, self.method.Client
        required = {f"server.{n}" for n in state.vectors} | {
            f"client.{n}" for n in declared.vectors
        }
        required |= {"client_previous"} if self.problem.remembers else set()
        optional = {f"server.{n}" for n in state.scratch} | {
            f"scratch.{n}" for n in declared.scratch
        }
        optional |= {"scratch_members"} if declared.scratch else set()
        missing, extra = required - set(tensors), set(tensors) - required - optional
        if missing or extra:
            words = [f"missing {', '.join(sorted(missing))}"] * bool(missing)
            words += [f"unknown {', '.join(sorted(extra))}"] * bool(extra)
            raise ValueError(
                f"the saved state is not one of {type(self.method).__name__}: {'; '.join(words)}"
            )
        for name, tensor in tensors.items():
            many = (self.problem.clients,)
            rows = {"server": (), "client": many, "client_previous": many}.get(name.split(".")[0])
            if rows is not None and tuple(tensor.shape) != (*rows, self.problem.dim):
                raise ValueError(
                    f"the saved {name} has shape {tuple(tensor.shape)}, not {(*rows, self.problem.dim)}"
                )
            if rows is not None and tensor.dtype != self.x0.dtype:
                raise ValueError(f"the saved {name} is {tensor.dtype}, not {self.x0.dtype}")
        device = self.x0.device
        server = {n: tensors[f"server.{n}"] for n in state.names() if f"server.{n}" in tensors}
        self.server = state(**{n: v.to(device, copy=True) for n, v in server.items()})
        self.load_clients(tensors)
        self._ends = []
        self._fixed, self._counted = None, (0, 0)
        self.round, self.phase = counters["round"], counters["phase"]
        self.ledger = Ledger(**{f.name: counters[f.name] for f in dataclasses.fields(Ledger)})

    def _plan(self) -> Plan:
        if self._fixed is not None:
            return self._fixed
        method = self.method
        if self.options.decay != 1:
            method = dataclasses.replace(method, lr=method.lr * self.options.decay**self.round)  # type: ignore
        now = self._begin(self.round)
        steps = method.local_steps(now)
        now = dataclasses.replace(now, steps=steps)
        most = self._most if steps is self.steps else max(steps)
        plan = Plan(steps, most, self.phases(method, now), method.blocks(now))
        if method.repeats() and self.options.decay == 1:
            self._fixed = plan
        return plan

    def _begin(self, number: int) -> Round:
        return Round(number, self.steps, lambda: self.streams.at("coins", number))

    def _members(self, phase: Any, plan: Plan) -> tuple[Cohort, list[int]]:
        """Who takes part in a phase, and their local steps."""
        n = self.problem.clients
        if phase.who == "one":
            cohort = Cohort(self.streams.at("one", self.round).integers(n, size=1), n, self.round)
        elif phase.who == "all" or self.cohort.always_full(n):
            return Cohort(self._everyone, n, self.round, sum(plan.steps) / n), list(plan.steps)
        else:
            cohort = self.cohort.draw(self.streams, self.round, n)
        steps = [plan.steps[i] for i in cohort.members.tolist()]
        return dataclasses.replace(cohort, steps=sum(steps) / cohort.size), steps

    def reduce(self, rows: Tensor, reduction: str, cohort: Cohort, picked: int | None) -> Tensor:
        """Uploads ``[C, d]`` of a cohort as the server receives them."""
        if picked is not None:
            return rows[picked]
        if reduction == "mean" and self._weights is not None:
            weights = self._weights.index_select(0, upload(cohort.members, rows.device))
            return (weights / weights.sum()) @ rows
        return rows.mean(0) if reduction == "mean" else rows.sum(0) if reduction == "sum" else rows

    def _book(self, phase: Any, cohort: Cohort, uploads: int) -> None:
        size = self.problem.dim * self.x0.element_size()
        down, up = phase.Down, phase.Up
        self.ledger.vectors_down += len(down.vectors)
        self.ledger.vectors_up += len(up.vectors)
        self.ledger.bytes_down += (len(down.vectors) - len(down.sparse)) * size * cohort.size
        self.ledger.bytes_up += (len(up.vectors) - len(up.sparse)) * size * uploads
        self.ledger.syncs += 1
