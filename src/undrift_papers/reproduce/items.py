"""Items: what a paper shows in one table or figure, read from the TOML files of its folder."""

from __future__ import annotations

import dataclasses
import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any, Literal

from undrift.core.params import Count, Natural, made, unknown
from undrift.plots.columns import SHARES
from undrift.spec.errors import Origin
from undrift.spec.reader import ITEM, Reader
from undrift.spec.schema import Entry, Spec, Values

PAPERS = Path(str(files("undrift_papers")))
RUNNABLE = ("curves", "sweep")
NEVER = "-"
"""Printed where a target was not reached."""
NAMES = {"top5": "top-5 accuracy", "grad_norm": "gradient norm", "train_loss": "training loss"}
"""What columns are called where their own names do not do."""


@dataclasses.dataclass(frozen=True)
class Column:
    """A number per method: how it is read off a run, and what the paper has.

    read       final, best, at (round ``at``), rounds (until ``of`` reaches ``to``), pace (seconds
               per round), total (seconds until ``to``), jitter (mean squared deviation from the
               moving average), slope (factor per round), saving (of what the method ``than`` has
               ``spent`` until ``to``)
    of         the recorded column
    spent      what is saved: rounds, vectors or gradients
    smooth     rows that each value is the mean of
    printed    the paper's number for a label; "-" for never
    above      what its text says of them: label -> labels with a smaller value
    first      or the one that is above all others
    much       whether the text says so by much: they differ by more than counts as no difference
    between    a value that the text has between the two of ``above`` or ``first``: 1 between what
               diverges and what converges
    ties       whether the text has ``first`` match the others too: it may be below them by as much
               as counts as no difference
    chance     a run that ends here or below did not train: it is told, and not in the mean
    stored     the numbers are not printed but stored with the authors' code
    tolerance  a difference up to this counts as none; ``None``: two points of an accuracy, a fifth
               of anything else
    judged     false where the numbers cannot be expected to agree
    """

    read: Literal["final", "best", "at", "rounds", "pace", "total", "jitter", "slope", "saving"]
    of: str = "accuracy"
    at: Natural | None = None
    to: float | None = None
    than: str | None = None
    spent: Literal["round", "vectors", "gradients"] = "vectors"
    smooth: Count = 1
    printed: dict[str, float | str] = dataclasses.field(default_factory=dict)
    above: dict[str, list[str]] = dataclasses.field(default_factory=dict)
    first: str | None = None
    much: bool = False
    between: float | None = None
    ties: bool = False
    chance: float | None = None
    stored: bool = False
    tolerance: float | None = None
    judged: bool = True

    @property
    def labels(self) -> list[str]:
        """The methods it is about."""
        below = [label for labels in self.above.values() for label in labels]
        return [*self.printed, *self.above, *below, *filter(None, (self.first, self.than))]

    @property
    def stated(self) -> bool:
        """Whether there is something to judge by."""
        return self.judged and bool(self.printed or self.above or self.first)

    def about(self, labels: Iterable[str]) -> list[str]:
        """Those of some methods that there is something to judge of."""
        return [label for label in labels if self.stated and (self.first or label in self.labels)]

    @property
    def share(self) -> bool:
        """Whether the value is in percent."""
        return self.of in SHARES and self.read in ("final", "best", "at")

    @property
    def title(self) -> str:
        of = NAMES.get(self.of, self.of)
        level = self.to if self.to is None or self.of not in SHARES else f"{100 * self.to:g} %"
        mean = f", mean of {self.smooth} rows" if self.smooth > 1 and self.read != "jitter" else ""
        saved = f"{self.spent.removesuffix('s')}s"
        words = {
            "final": f"last {of}",
            "best": f"best {of}",
            "at": f"{of} at {self.at}",
            "rounds": f"rounds to {of} {level}",
            "pace": "seconds per round",
            "total": f"seconds to {of} {level}",
            "jitter": f"mean squared deviation of {of} from its mean over {self.smooth} rows",
            "slope": f"factor of {of} per round",
            "saving": f"{saved} of {self.than} over its own, to {of} {level}",
        }
        unit = ", %" if self.share else ""
        return f"{words[self.read]}{mean}{unit}"


@dataclasses.dataclass(frozen=True)
class Panel:
    """One setting of an item: the spec of the file ``base``, changed by ``set``, and its methods.

    ``at`` is its place on the axis of a sweep.
    """

    name: str
    title: str
    base: str | None = None
    set: list[str] = dataclasses.field(default_factory=list)
    methods: list[str] = dataclasses.field(default_factory=list)
    at: float | None = None
    column: list[Column] = dataclasses.field(default_factory=list)


@dataclasses.dataclass(frozen=True)
class Item:
    """One table or figure.

    A file without a title is a spec for items to share: whole, or ``base`` changed by ``set``.

    kind       curves; sweep: the first column over the panels; heatmap: labels per client;
               computed: a table without runs; measured: one with rates measured besides
    shows      what the paper shows with it
    takes      how long it takes with one seed, and where that was measured ("about": reckoned from
               runs of other items); empty if not known
    ambiguous  settings that are open, and how they were resolved
    authors    what the authors' code does differently
    reason     why it is not reproduced, or only its order or in part, where that is known
    causes     what was found on the way there, point by point
    found      what the runs gave that these two were written about, as ``Report.found`` has it;
               with others they are left out
    claim      what the paper says it shows, in its words: it holds if the pairs of ``above`` and
               ``first`` do
    answer     whether it does, by hand, where pairs do not express it; about the runs of ``found``
    because    of such an answer: why
    seeds      runs the paper averages
    quick      changes for ``--quick``
    draw       columns that are drawn, one plot each
    over       what they are drawn against
    warm       rounds of the panel's first method from whose end all of them start
    grid       label -> settings to try; the best one after all rounds is shown
    across     plots side by side
    axis       what a sweep is over
    table      of a computed item: its name in ``undrift tables``
    """

    name: str
    title: str
    shows: str
    kind: Literal["curves", "sweep", "heatmap", "computed", "measured"] = "curves"
    takes: str = ""
    base: str | None = None
    ambiguous: list[str] = dataclasses.field(default_factory=list)
    authors: list[str] = dataclasses.field(default_factory=list)
    reason: str = ""
    causes: list[str] = dataclasses.field(default_factory=list)
    found: dict[str, float] = dataclasses.field(default_factory=dict)
    claim: str = ""
    answer: Literal["yes", "no", "cannot be told", "not run"] | None = None
    because: str = ""
    seeds: Count = 1
    quick: list[str] = dataclasses.field(default_factory=list)
    draw: list[str] = dataclasses.field(default_factory=lambda: ["accuracy"])
    over: list[str] = dataclasses.field(default_factory=lambda: ["round"])
    warm: Natural = 0
    grid: dict[str, list[dict[str, float]]] = dataclasses.field(default_factory=dict)
    smooth: Count = 1
    across: Count = 2
    axis: str = ""
    table: str = ""
    panel: list[Panel] = dataclasses.field(default_factory=list)

    @property
    def paper(self) -> str:
        return self.name.partition("/")[0]

    @property
    def runs(self) -> bool:
        return self.kind in RUNNABLE

    def sources(self, panel: Panel) -> list[Path]:
        """The file that holds the panel's spec, then those that change it."""
        found = [_file(f"{self.paper}/{panel.base or self.base or self.name.partition('/')[2]}")]
        while (base := _common(found[0]).get("base")) and "panel" not in _common(found[0]):
            found.insert(0, _file(f"{self.paper}/{base}"))
        return found

    def spec(self, panel: Panel, quick: bool = False, flags: Sequence[str] = ()) -> Spec:
        """What the panel runs."""
        sources = self.sources(panel)
        changes = [flag for file in sources for flag in _common(file).get("set", ())] + panel.set
        changes += self.less(panel) if quick else []
        spec = _spec(sources[0], (*changes, *flags))
        kept = tuple(
            entry for entry in spec.entries if not panel.methods or entry.label in panel.methods
        )
        return dataclasses.replace(spec, entries=kept)

    def tried(self, entry: Entry, quick: bool = False) -> list[Entry]:
        """The settings of its grid for one method; every third for a quick look."""
        points = self.grid.get(entry.label, [])[:: 3 if quick else 1]
        return [_at(point, entry) for point in points]

    def less(self, panel: Panel) -> list[str]:
        """The changes of a quick run."""
        return list(dict.fromkeys([*self._inherited(panel, "quick"), *self.quick]))

    def notes(self, what: Literal["ambiguous", "authors"]) -> list[str]:
        """Its own notes, and those of the specs it runs."""
        found = [note for panel in self.panel if self.runs for note in self._inherited(panel, what)]
        return list(dict.fromkeys([*found, *getattr(self, what)]))

    def _inherited(self, panel: Panel, what: str) -> list[str]:
        """What the specs of a panel have; a ``note`` ``of`` some methods only if one is there."""
        entries = [entry for file in self.sources(panel) for entry in _common(file).get(what, ())]
        return [
            entry if isinstance(entry, str) else entry["note"]
            for entry in entries
            if isinstance(entry, str) or not panel.methods or {*entry["of"]} & {*panel.methods}
        ]


def names() -> list[str]:
    """Every item, in the order of papers and pages."""
    titled = (file for file in PAPERS.glob("*/*.toml") if "title" in _common(file))
    return sorted((f"{file.parent.name}/{file.stem}" for file in titled), key=_order)


@cache
def item(name: str) -> Item:
    """The item of that exact name."""
    return made(Item, _common(_file(name)) | {"name": name}, kind="key of an item")


def find(wanted: str) -> Iterator[tuple[Item, list[Panel]]]:
    """The items and panels of ``all``, PAPER, PAPER/ITEM or PAPER/ITEM/PANEL."""
    name, panel = "/".join(wanted.split("/")[:2]), wanted.split("/")[2:]
    chosen = [n for n in names() if name in ("all", n, n.partition("/")[0])]
    if not chosen:
        papers = dict.fromkeys(n.partition("/")[0] for n in names())
        raise ValueError(unknown("item", name, ["all", *papers, *names()]))
    for it in map(item, chosen):
        panels = [p for p in it.panel if panel in ([], [p.name])]
        if panel and not panels:
            raise ValueError(unknown("panel", panel[0], [p.name for p in it.panel]))
        yield it, panels


def _common(file: Path) -> dict[str, Any]:
    """The [item] of a file."""
    found: dict[str, Any] = _document(file).get(ITEM, {})
    return found


@cache
def _document(file: Path) -> Values:
    """The TOML of a file, parsed once: many panels run changes of the same spec."""
    return tomllib.loads(file.read_text(encoding="utf-8"))


@cache
def _spec(file: Path, flags: tuple[str, ...]) -> Spec:
    """The spec of a file with these changes; panels share many."""
    return Reader(_document(file), Origin(str(file), file.read_text(encoding="utf-8"))).spec(flags)


def _at(point: Mapping[str, float], entry: Entry) -> Entry:
    """A method with the settings of one point of its grid: hyper-parameters, and local steps."""
    options, given = entry.options, {**entry.given, **point}
    if "steps" in point:
        options = dataclasses.replace(options, steps=int(point["steps"]), epochs=None)
    own = {name: value for name, value in point.items() if name != "steps"}
    method = dataclasses.replace(entry.method, **own)
    return dataclasses.replace(entry, method=method, given=given, options=options)


def _file(name: str) -> Path:
    paper, _, stem = name.partition("/")
    return PAPERS / paper / f"{stem}.toml"


def _order(name: str) -> tuple[str, bool, int, str]:
    """Tables before figures, 2 before 10."""
    paper, _, rest = name.partition("/")
    kind, _, number = rest.partition("-")
    return paper, kind != "table", int(number) if number.isdecimal() else 0, number
