"""A method is its hyper-parameters and its phases of (send, work, merge)."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any, ClassVar, Literal, dataclass_transform

from undrift.core.params import THEORY, BadParameters, check, hints
from undrift.core.struct import Message, State

if TYPE_CHECKING:
    from undrift.core.cohort import Cohort, Sampling
    from undrift.core.local import Local
    from undrift.core.struct import Vec


@dataclasses.dataclass(frozen=True)
class Round:
    """A round about to begin."""

    number: int
    """Rounds completed before it."""
    steps: Sequence[int]
    """Local steps asked of each client."""
    draw: Callable[[], Any] | None = dataclasses.field(default=None, repr=False)

    @property
    def first(self) -> bool:
        return self.number == 0

    @property
    def coin(self) -> Any:
        """A random generator shared by all clients, in the same state whenever it is taken."""
        return self.draw() if self.draw else None


Reduction = Literal["mean", "sum", "stack", "pick"]
Who = Literal["cohort", "all", "one"]

registry: dict[str, type[Method]] = {}
"""Every concrete method by name."""


class Phase:
    """One exchange with the server.

    Nested in a method, a phase sees the method's hyper-parameters and states as its own.
    """

    who: Who = "cohort"
    """Who takes part: the round's cohort, every client, or one client drawn from all."""
    reduction: Reduction = "mean"
    """What the server receives of the uploads: their mean, their sum, all of them, or that of one
    client at random.
    """

    class Down(Message):
        pass

    class Up(Message):
        pass

    def __init__(self, method: Method):
        self.method = method

    def __getattr__(self, name: str) -> Any:
        return getattr(self.method, name)

    def send(self, s: Any) -> Message:
        """What every participant receives."""
        raise NotImplementedError

    def work(self, me: Any, got: Any, f: Local) -> tuple[Any, Message]:
        """What a client does with it: its new state, and what it sends back."""
        raise NotImplementedError

    def merge(self, s: Any, up: Any, cohort: Cohort) -> Any:
        """The server's new state from the reduced uploads."""
        raise NotImplementedError


@dataclass_transform(frozen_default=True, kw_only_default=True)
@dataclasses.dataclass(frozen=True, kw_only=True)
class Method:
    """A federated method. Subclasses become frozen dataclasses; their fields are the
    hyper-parameters.

    Nested :class:`Phase` classes run in the order written; the method's own ``send``, ``work`` and
    ``merge``,
    where it has them, are the last phase of the round.
    """

    abstract: ClassVar[bool] = True
    title: ClassVar[str] = ""
    paper: ClassVar[str] = ""
    participation: ClassVar[Literal["partial", "full"]] = "partial"
    exact: ClassVar[bool] = False
    """Reaches the minimiser on heterogeneous strongly convex problems with a constant step."""
    equal_steps: ClassVar[bool] = False
    """Every client must take the same number of local steps."""
    coordinatewise: ClassVar[bool] = False
    """Treats coordinates one by one, so that rotating them matters."""
    affine: ClassVar[bool] = True
    """On quadratics with exact gradients a round is an affine map of all the states."""
    weighted: ClassVar[bool] = False
    """May weigh the clients by their number of samples."""
    solves: ClassVar[bool] = False
    """Needs the exact regularised minimiser of each client's problem."""
    provisional: ClassVar[str] = ""
    """Why the recursion is not certain to be its authors', where it is not."""

    who: ClassVar[Who] = "cohort"
    reduction: ClassVar[Reduction] = "mean"

    class Server(State):
        pass

    class Client(State):
        pass

    class Down(Message):
        pass

    class Up(Message):
        pass

    def __init_subclass__(cls, abstract: bool = False, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        dataclasses.dataclass(frozen=True, kw_only=True)(cls)
        cls.abstract = abstract
        if not abstract:
            registry[cls.__name__] = cls

    def __post_init__(self) -> None:
        values = {f.name: getattr(self, f.name) for f in dataclasses.fields(self)}
        problems = check(type(self).__name__, type(self), values, theory=True)
        if not problems and not self.open_fields():
            problems = {f"{k}": text for k, text in enumerate(self.conditions())}
        if problems:
            raise BadParameters(type(self).__name__, problems)

    def conditions(self) -> Sequence[str]:
        """What is wrong with the hyper-parameters taken together."""
        return ()

    def open_fields(self) -> list[str]:
        """Hyper-parameters still to be set by theory."""
        return [name for name in hints(type(self)) if getattr(self, name) == THEORY]

    def server(self, x0: Vec) -> Any:
        """The server's state before the first round."""
        return self.Server(x=x0)

    def client(self, x0: Vec) -> Any:
        """Every client's state before the first round."""
        return self.Client()

    def point(self, s: Any) -> Vec:
        """The model the server stands for."""
        return s.x

    def local_steps(self, now: Round) -> Sequence[int]:
        """Local steps of each client in a round."""
        return now.steps

    def blocks(self, now: Round) -> int:
        """How often the local work is repeated before communicating."""
        return 1

    def phases(self, now: Round) -> list[Any]:
        """The exchanges of one round."""
        nested = [self._phase(name) for name in phase_names(type(self))]  # type: ignore[arg-type]
        return nested + ([self] if hasattr(type(self), "work") else [])

    def refuse(
        self, clients: int, cohort: Sampling, steps: int | Sequence[int], weights: str = "uniform"
    ) -> list[str]:
        """Why this method cannot run in such a federation: one sentence per reason.

        ``steps`` are those of each client, or one number for all.
        """
        name, reasons = type(self).__name__, cohort.refuse(clients)
        if not reasons and self.participation == "full" and not cohort.always_full(clients):
            reasons.append(
                f"{name} needs every client in every round: leave out the cohort of {cohort.size}"
            )
        if weights != "uniform" and not self.weighted:
            reasons.append(f"{name} is defined for uniform means: leave out weights = {weights!r}")
        if isinstance(steps, int):
            return reasons
        if self.equal_steps and len(set(steps)) > 1:
            reasons.append(f"{name} needs the same number of local steps on every client")
        if len(steps) != clients:
            reasons.append(f"{len(steps)} numbers of local steps were given for {clients} clients")
        return reasons

    def refuse_decay(self, decay: float) -> list[str]:
        """Why its lr cannot be multiplied by ``decay`` after every round: one sentence per reason."""
        if decay == 1 or hasattr(self, "lr"):
            return []
        return [f"{type(self).__name__} has no lr to decay: leave out decay = {decay:g}"]

    @classmethod
    def repeats(cls) -> bool:
        """Whether every round has the same steps, exchanges and blocks: none of these is
        overridden.
        """
        names = ("local_steps", "phases", "blocks")
        return all(getattr(cls, name) is getattr(Method, name) for name in names)

    def _phase(self, name: str) -> Phase:
        return getattr(type(self), name)(self)


@cache
def phase_names(cls: type[Method]) -> list[str]:
    """Nested phases in the order written, those of base classes first."""
    names: dict[str, None] = {}
    for base in reversed(cls.__mro__):
        names |= {
            n: None for n, v in vars(base).items() if inspect.isclass(v) and issubclass(v, Phase)
        }
    return list(names)
