"""Write the tables of docs/choosing.md from what the methods declare, and from what was measured.

``make stubs`` runs it after a method was added; tests/methods/test_choosing.py compares.
"""

import dataclasses
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from undrift.cli.listing import ABSENT
from undrift.core import BadParameters, Constants, Method
from undrift.core.costs import Costs, costs, placeholder
from undrift.core.params import THEORY, needed
from undrift.methods import registry
from undrift.theory import has_rule, prescribe

PAGE = Path(__file__).parents[1] / "docs/choosing.md"
MEASURED = Path(__file__).parents[1] / "benchmarks/choosing.json"
KNOWN = {"L": 2.0, "L_mean": 2.0, "delta_A": 1.0, "delta_B": 1.0}
CLASSES = {"any": -1.0, "convex": 0.0, "strongly convex": 1.0}
"""Kinds of problems, widest first, with a mu of theirs."""


@dataclasses.dataclass(frozen=True)
class Row:
    """What a method declares, as far as choosing depends on it."""

    method: type[Method]
    costs: Costs

    @property
    def name(self) -> str:
        return self.method.__name__

    @property
    def some(self) -> bool:
        """Whether some clients may be absent from a round."""
        return self.method.participation == "partial"

    @property
    def exact(self) -> str:
        """Whether, and when, the minimiser is reached."""
        if not self.method.exact:
            return "no"
        if self.some and self.name not in ABSENT:
            return "if none is absent"
        given = ABSENT.get(self.name, {})
        return ", ".join(["yes", *(f"{name} = {value}" for name, value in given.items())])

    @property
    def light(self) -> bool:
        """Whether one vector travels each way in a round."""
        return self.costs.up == self.costs.down == 1

    @property
    def theory(self) -> str:
        """The widest kind of problem for which theory sets all hyper-parameters that it has."""
        fields = [f for f in dataclasses.fields(self.method) if has_rule(self.method, f.name)]
        given = dict.fromkeys(needed(self.method), 1)
        if fields:
            method = self.method(**{**given, **{f.name: THEORY for f in fields}})
            for kind, mu in CLASSES.items():
                try:
                    prescribe(method, Constants(mu=mu, **KNOWN), steps=1)
                    return kind
                except BadParameters:
                    pass
        return "none"

    @property
    def tuned(self) -> list[str]:
        """Hyper-parameters that have neither a default nor a rule."""
        given = needed(self.method)
        names = [f.name for f in dataclasses.fields(self.method) if f.name in given]
        return [name for name in names if not has_rule(self.method, name)]

    @property
    def needs(self) -> list[str]:
        needs = ["exact local minimisers"] if self.method.solves else []
        return [*needs, "equal local steps"] if self.method.equal_steps else needs


QUESTIONS: dict[str, Callable[[Row], bool]] = {
    "some clients may be absent": lambda row: row.name in ABSENT,
    "some clients may be absent, one vector each way": lambda row: row.name in ABSENT and row.light,
    "all take part, one vector each way": lambda row: row.method.exact and row.light,
    "all take part, clients keep nothing": lambda row: row.method.exact and not row.costs.client,
    "theory sets all that has no default": lambda row: row.method.exact and not row.tuned,
    "clients minimise their regularised function exactly": lambda row: row.method.solves,
}
"""What decides a choice, and the methods that remain."""


def rows() -> list[Row]:
    names = sorted(registry, key=str.casefold)
    return [Row(registry[name], costs(placeholder(registry[name]))) for name in names]


def shortlist() -> str:
    lines = ["| situation | methods |", "|---|---|"]
    for question, fits in QUESTIONS.items():
        lines.append(f"| {question} | {', '.join(row.name for row in rows() if fits(row))} |")
    return "\n".join(lines)


def facts() -> str:
    lines = [
        "| method | clients | up | down | exchanges | kept by a client | exact | theory | to tune "
        "| needs |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    for row in rows():
        cells = [
            row.name + (" \\*" if row.method.provisional else ""),
            "some" if row.some else "all",
            row.costs.up,
            row.costs.down,
            row.costs.syncs,
            row.costs.client,
            row.exact,
            row.theory,
            ", ".join(row.tuned) or "-",
            ", ".join(row.needs) or "-",
        ]
        lines.append(f"| {' | '.join(map(str, cells))} |")
    return "\n".join(lines)


def measured() -> str:
    """What benchmarks/choosing.py found."""
    results = json.loads(MEASURED.read_text(encoding="utf-8"))
    titles = {name: one["title"] for name, one in results["situations"].items()}
    by = {(one["method"], one["situation"]): one for one in results["found"]}
    fewest = {
        situation: min(one["round"] for one in results["found"] if _reached(one, situation))
        for situation in titles
    }
    lines = [f"| method | {' | '.join(titles.values())} |", "|---" * (len(titles) + 1) + "|"]
    for name in sorted(registry, key=str.casefold):
        cells = [_cell(by.get((name, situation)), fewest[situation]) for situation in titles]
        lines.append(f"| {' | '.join([name, *cells])} |")
    when = (
        f"`python -m benchmarks.choosing`, {results['date']}, commit {results['commit']}, "
        f"{results['seconds'] / 60:.0f} minutes on two busy cores."
    )
    return "\n".join([*lines, "", when])


def _reached(one: Mapping[str, Any], situation: str) -> bool:
    return one["situation"] == situation and "round" in one


def _cell(one: Mapping[str, Any] | None, fewest: int) -> str:
    """Rounds, vectors and gradients until the target, or why there are none."""
    if one is None:
        return "not measured"  # python -m benchmarks.choosing --missing does
    if "refused" in one:
        return str(one["refused"])
    if "round" not in one:
        return "-"
    rounds = f"**{one['round']}**" if one["round"] == fewest else str(one["round"])
    gradients = one["gradients"]
    short = f"{gradients / 1000:.1f}k" if gradients < 99_950 else f"{gradients / 1000:.0f}k"
    return f"{rounds} / {one['vectors']} / {short}"


def written(page: str) -> str:
    """The page with its tables as they should be."""
    tables = {"shortlist": shortlist(), "facts": facts(), "measured": measured()}
    for name, table in tables.items():
        head, rest = page.split(f"<!-- {name} -->\n", 1)
        tail = rest.split("<!-- end -->", 1)[1]
        page = f"{head}<!-- {name} -->\n\n{table}\n\n<!-- end -->{tail}"
    return page


if __name__ == "__main__":
    PAGE.write_text(written(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
