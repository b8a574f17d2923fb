"""A method is its hyper-parameters and its phases of (send, work, merge)."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from copy import copy
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self, TypeAlias, dataclass_transform

from undrift.core.aggregation import MEAN, Aggregation, Robust
from undrift.core.params import THEORY, Record, Refusal, hints
from undrift.core.problem import NO_MINIMISER
from undrift.core.struct import Message, State

if TYPE_CHECKING:
    from numpy.random import Generator

    from undrift.core.cohort import Cohort, Sampling
    from undrift.core.local import Local
    from undrift.core.optimisers import Optimiser
    from undrift.core.problem import Problem
    from undrift.core.schedules import Schedule
    from undrift.core.struct import Vec


@dataclasses.dataclass(frozen=True)
class Round:
    """A round about to begin."""

    number: int
    """Rounds completed before it."""
    steps: Sequence[int]
    """Local steps asked of each client."""
    draw: Callable[[], Generator] | None = dataclasses.field(default=None, repr=False)

    @property
    def first(self) -> bool:
        return self.number == 0

    @property
    def coin(self) -> Generator:
        """The round's random generator, shared by all clients: always in the same state."""
        if self.draw is None:
            raise ValueError("this round has no coin")
        return self.draw()


Declared: TypeAlias = Any
"""A record of the class that a method declares; an overriding function names its own."""
Reduction = Literal["mean", "sum", "stack", "pick"]
"""What the server makes of the uploads of a phase: one vector, all of them, or one client's."""
Who = Literal["cohort", "all", "one"]
"""Who takes part in a phase."""

registry: dict[str, type[Method]] = {}
"""Every concrete method by name."""


class Exchange:
    """One exchange with the server: send, work, merge. By default the server sends its point x."""

    class Down(Message):
        x: Vec

    class Up(Message):
        pass

    @property
    def who(self) -> Who:
        """Who takes part: the round's cohort, every client, or one client drawn from all."""
        return "cohort"

    @property
    def reduction(self) -> Reduction:
        """What the server receives: the mean, the sum, all uploads, or that of a random client."""
        return "mean"

    def send(self, s: Declared) -> Message:
        """What every participant receives: by default the server's fields that Down names."""
        if lacking := set(self.Down.vectors).difference(s.names):
            raise TypeError(
                f"{self.Down.__qualname__} has a field {min(lacking)}, which "
                f"{type(s).__qualname__} lacks; it has {', '.join(s.names)}"
            )
        return self.Down(**{name: getattr(s, name) for name in self.Down.vectors})

    def work(self, me: Declared, got: Declared, f: Local) -> tuple[Declared, Message]:
        """The client's new state and its upload."""
        raise NotImplementedError(
            f"{type(self).__qualname__} has no work: write work(self, me, got, f)"
        )

    def merge(self, s: Declared, up: Declared, cohort: Cohort) -> Declared:
        """The server's new state from the reduced uploads."""
        raise NotImplementedError(
            f"{type(self).__qualname__} has no merge: write merge(self, s, up, cohort)"
        )

    def centre(self, s: Declared) -> Message | None:
        """The upload of a client that did nothing, from which reductions that clip measure.

        ``None`` is zero, which is right for differences and gradients; for models it is s.x.
        """
        return None


class Phase(Exchange):
    """An exchange before the method's own.

    Nested in a method, a phase reads the method's hyper-parameters and states as its own.
    """

    def __init__(self, method: Method):
        self.method = method

    def __getattr__(self, name: str) -> Any:
        return getattr(self.method, name)


@dataclass_transform(kw_only_default=True)
class Method(Exchange, Record):
    """A federated method: a frozen dataclass whose fields are the hyper-parameters.

    Nested :class:`Phase` classes run in the order written; the method's own ``send``, ``work`` and
    ``merge`` are the last phase of the round, if it has a ``work``. By default the server holds and
    sends a point x.
    """

    if TYPE_CHECKING:
        __dataclass_fields__: ClassVar[dict[str, dataclasses.Field[object]]]

    by_theory = True
    abstract: ClassVar[bool] = True
    title: ClassVar[str] = ""
    paper: ClassVar[str] = ""
    participation: ClassVar[Literal["partial", "full"]] = "partial"
    exact: ClassVar[bool] = False
    """Reaches the minimiser on heterogeneous strongly convex problems with a constant step, where
    all clients take part in every round."""
    equal_steps: ClassVar[bool] = False
    """Every client must take the same number of local steps."""
    coordinatewise: ClassVar[bool] = False
    """Treats coordinates one by one, so that rotating them matters."""
    affine: ClassVar[bool] = True
    """On quadratics with exact gradients a round is an affine map of all the states."""
    weighted: ClassVar[bool] = False
    """May weigh the clients by their number of samples."""
    robust: ClassVar[bool] = False
    """Means may be replaced by a robust rule: nothing that is kept depends on their being the
    means. Where an upload is a model, ``centre`` must say so."""
    needs_mean: ClassVar[str] = ""
    """Why they may not, where that is known."""
    solves: ClassVar[bool] = False
    """Needs the exact regularised minimiser of each client's problem."""
    provisional: ClassVar[str] = ""
    """Why the recursion is not certain to be its authors', where it is not."""
    step_sizes: ClassVar[tuple[str, ...]] = ("lr",)
    """Hyper-parameters that are to be smaller where a run diverges."""
    proximal_weights: ClassVar[tuple[str, ...]] = ()
    """Hyper-parameters that are to be larger where a run diverges: they hold steps back."""
    steering: ClassVar[tuple[str, ...]] = ()
    """Hyper-parameters that decide what a round does, so that settings side by side share them."""
    prescribed: ClassVar[Mapping[str, Callable[..., float]]] = {}
    """Rules for hyper-parameters that may be left to theory, each a function of the method and of
    :class:`undrift.theory.Known`. A rule may use those before it. Rules are not inherited."""

    promise: ClassVar[object] = None
    """A theorem's bound on f(x) - f*, an :class:`undrift.theory.Promise`. Not inherited."""

    nested: ClassVar[tuple[type[Phase], ...]] = ()
    """Nested phases in the order written, those of base classes first."""

    class Server(State):
        x: Vec

    class Client(State):
        pass

    def __init_subclass__(
        cls, abstract: bool = False, register: bool = True, **kwargs: object
    ) -> None:
        super().__init_subclass__(**kwargs)
        dataclasses.dataclass(frozen=True, kw_only=True)(cls)
        cls.abstract, cls.nested = abstract, _nested(cls)
        steps = (*cls.step_sizes, *cls.proximal_weights)
        cls.step_field = next((name for name in steps if name in cls.__dataclass_fields__), "")
        if register and not abstract:
            registry[cls.__name__] = cls

    def scaled(self, factor: float) -> Self:
        """The same with ``factor`` times its lr, which a schedule is refused without."""
        other = copy(self)
        object.__setattr__(other, "lr", getattr(self, "lr") * factor)  # noqa: B009
        return other

    def open_fields(self, *words: str) -> list[str]:
        """Hyper-parameters that are one of ``words``: by default those left to theory."""
        return [name for name in hints(type(self)) if getattr(self, name) in (words or (THEORY,))]

    @property
    def needs_sgd(self) -> str:
        """Why another optimiser may not take its local steps; empty where it may.

        It may where all local steps are those of ``f.sgd``, and lr is used for nothing else: then
        no displacement is taken for a sum of gradients.
        """
        return 'it does not declare that its algebra permits that (needs_sgd = "")'

    def server(self, x0: Vec) -> Declared:
        """The server's state before the first round."""
        return self.Server(x=x0)

    def client(self, x0: Vec) -> Declared:
        """Every client's state before the first round."""
        return self.Client()

    def point(self, s: Declared) -> Vec:
        """The server's model."""
        x: Vec = s.x
        return x

    def own_point(self, me: Declared, x: Vec) -> Vec | None:
        """A client's own model, where the method keeps one for every client between rounds.

        ``x`` is the server's model. It is measured on the client's own samples; without one, the
        last local models of those who took part in a round are.
        """
        return None

    def local_steps(self, now: Round) -> Sequence[int]:
        """Local steps of each client in a round."""
        return now.steps

    def blocks(self, now: Round) -> int:
        """How often the local work is repeated before communicating."""
        return 1

    def phases(self, now: Round) -> list[Exchange]:
        """The exchanges of one round: by default all that there are."""
        return self.exchanges()

    def exchanges(self) -> list[Exchange]:
        """Every exchange that the method declares."""
        nested: list[Exchange] = [kind(self) for kind in self.nested]
        mine = type(self).work is not Method.work or type(self).merge is not Method.merge
        return [*nested, self] if mine or not nested else nested

    def refuse(
        self,
        clients: int,
        cohort: Sampling,
        steps: int | Sequence[int],
        aggregation: Aggregation = MEAN,
    ) -> list[Refusal]:
        """Why this method cannot run in such a federation.

        ``steps`` are those of each client, or one number for all.
        """
        name, reasons = type(self).__name__, cohort.refuse(clients)
        if not reasons and self.participation == "full" and not cohort.always_full(clients):
            text = f"needs every client in every round: leave out the cohort of {cohort.size}"
            reasons.append(Refusal("cohort", f"{name} {text}"))
        if aggregation.by_samples and not self.weighted:
            text = f"is defined for means of clients that count alike: leave out {aggregation.name}"
            reasons.append(Refusal("aggregation", f"{name} {text}"))
        if isinstance(aggregation, Robust):
            reasons += self._refuse_robust(aggregation) or aggregation.refuse(cohort)
        if isinstance(steps, int):
            return reasons
        if self.equal_steps and len(set(steps)) > 1:
            text = "needs the same number of local steps on every client: give one number as steps"
            reasons.append(Refusal("steps", f"{name} {text}"))
        if len(steps) != clients:
            text = f"{len(steps)} numbers of local steps were given for {clients} clients"
            reasons.append(Refusal("steps", text))
        return reasons

    def refuse_schedule(self, schedule: Schedule) -> list[Refusal]:
        """Why its lr cannot follow a schedule."""
        if hasattr(self, "lr"):
            return []
        text = f"{type(self).__name__} has no lr that could follow it: leave out schedule"
        return [Refusal("schedule", text)]

    def refuse_optimiser(self, optimiser: Optimiser) -> list[Refusal]:
        """Why another optimiser than SGD cannot take its local steps."""
        if not self.needs_sgd:
            return []
        text = (
            f"{type(self).__name__} cannot run with {optimiser.name} instead of local SGD: "
            f"{self.needs_sgd}; leave out optimiser, or use a method that can (needs_sgd in "
            "undrift list methods --json)"
        )
        return [Refusal("training.optimiser", text)]

    def minimising(self) -> str:
        """Its field for which it needs exact minimisers: empty where it does without, and ``name``
        where it always does.
        """
        return "name" if self.solves else ""

    def refuse_problem(self, problem: Problem) -> list[Refusal]:
        """Why it cannot run on a problem."""
        field = self.minimising()
        if not field or problem.minimises:
            return []
        text = (
            f"{type(self).__name__} needs the exact minimiser of every client's regularised "
            f"problem, and {type(problem).__name__} has none: {NO_MINIMISER}"
        )
        return [Refusal(field, text)]

    def _refuse_robust(self, rule: Robust) -> list[Refusal]:
        """Why a robust rule cannot take the place of its means."""
        if not self.robust:
            why = self.needs_mean or "it does not declare that its algebra permits that (robust)"
        elif any(phase.who == "one" or phase.reduction != "mean" for phase in self.exchanges()):
            why = "not all of its exchanges end in a mean of many uploads"
        else:
            return []
        text = (
            f"{type(self).__name__} cannot run with {rule.name} instead of the mean: {why}; leave "
            "out aggregation, or use a method that can (robust in undrift list methods --json)"
        )
        return [Refusal("aggregation", text)]

    @classmethod
    def repeats(cls) -> bool:
        """Whether steps, exchanges and blocks of all rounds are equal: none is overridden."""
        declared = Method.local_steps, Method.phases, Method.blocks
        return (cls.local_steps, cls.phases, cls.blocks) == declared


class WrongForm(TypeError):
    """A vector that a method gives has another type or shape than the model."""


def returned(
    owner: Exchange,
    function: str,
    found: Any,
    *names: str,
    like: Vec | None = None,
    clients: int = 0,
) -> Any:
    """What a function of a method has returned, if it is one record of each of these classes.

    Their vectors must be ``like`` this one, or have such a row for each of so many ``clients``.
    """
    several = found if isinstance(found, tuple) else (found,)
    kinds = [getattr(owner, name) for name in names]
    if len(several) != len(kinds) or not all(map(isinstance, several, kinds)):
        did = ["None" if one is None else type(one).__name__ for one in several]
        raise TypeError(
            f"{getattr(owner, function).__qualname__} must return {' and '.join(names)}; "
            f"it returned {' and '.join(did)}"
        )
    if like is not None:
        dtype, own = like.dtype, like.shape
        shapes = ((clients, *own), own) if clients else (own,)
    for name, vector in [pair for record in several for pair in record.items()]:
        if not hasattr(vector, "dim"):
            raise TypeError(
                f"{getattr(owner, function).__qualname__} gives {name} as {type(vector).__name__}, "
                "not as a vector: for a number write 0 * x + number, with a vector x"
            )
        if like is None or (vector.dtype == dtype and vector.shape in shapes):
            continue
        raise WrongForm(
            f"{getattr(owner, function).__qualname__} gives {name} as {vector.dtype} "
            f"{[*vector.shape]}, not as {dtype} {[*shapes[0]]}"
        )
    return found


# Frozen at run time; mypy reads inherited fields of frozen dataclasses by what they may be set to,
# so that an OrTheory[Positive] would not be a number in a subclass.
dataclasses.dataclass(frozen=True, kw_only=True)(Method)


def _nested(cls: type[Method]) -> tuple[type[Phase], ...]:
    for name, value in vars(cls).items():
        other = isinstance(value, type) and not issubclass(value, Phase)
        if other and {"send", "work", "merge"} & vars(value).keys():
            raise TypeError(f"{value.__qualname__} is no Phase: write class {name}(Phase):")
    names = dict.fromkeys(
        name
        for base in reversed(cls.__mro__)
        for name, value in vars(base).items()
        if isinstance(value, type) and issubclass(value, Phase)
    )
    return tuple(getattr(cls, name) for name in names)
