"""A report: one HTML file that needs nothing else, neither a network nor a script that it does not
carry.
"""

from __future__ import annotations

import base64
import dataclasses
import hashlib
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import Any

from undrift.methods import registry
from undrift.report import pictures as stills
from undrift.report import tables as sheets
from undrift.report.figures import LOGARITHMIC, TESTED, WORDS
from undrift.report.scores import SPENT, Setting, complete, scores
from undrift.report.summary import curves, metric
from undrift.report.text import SHARES, clean
from undrift.runs.folder import Outcome, Row

MEASURED = {
    "gap": "gap, f(x) − f*",
    "accuracy": "accuracy, %",
    "top5": "accuracy among five, %",
    "loss": "loss, f(x)",
    "train_loss": "training loss",
    "train_accuracy": "training accuracy, %",
    "grad_norm": "gradient, ‖∇f(x)‖",
    "distance": "distance, ‖x − x*‖",
    "drift": "drift, mean squared distance",
}
"""Columns that can be drawn, in the order they are offered."""
SPENDING = WORDS | {"bytes": "bytes up and down, all clients", "seconds": "seconds of training"}
POINTS = 1500
"""Points of a curve; more rows than that are thinned."""
CLIENTS = 100
"""Clients in a heat map; of more, some are shown."""


@dataclasses.dataclass(frozen=True)
class About:
    """What is to be said of one run beside its numbers."""

    name: str
    facts: Sequence[str]
    spec: str
    environment: Mapping[str, Any]
    command: str
    remarks: Sequence[str] = ()
    partition: Mapping[str, Any] | None = None
    """``classes`` and ``counts [clients, classes]``."""


@dataclasses.dataclass(frozen=True)
class Content:
    """All that a report is made from; labels are those of all runs together."""

    runs: Sequence[About]
    rows: Sequence[Row]
    outcomes: Sequence[Outcome]
    planned: Mapping[str, Sequence[int]]
    """The seeds each label was to be run with."""
    target: float | None = None
    smooth: int = 1
    note: str = ""
    """What is to be said beside any accuracy."""
    settings: Mapping[str, Setting] = dataclasses.field(default_factory=dict)
    """By label."""
    varied: Sequence[str] = ()
    """What seeds vary."""


def page(content: Content) -> str:
    """The report as HTML."""
    from jinja2 import Environment, PackageLoader, StrictUndefined
    from markupsafe import Markup
    from plotly.offline import get_plotlyjs

    content = dataclasses.replace(_clean(content), rows=complete(_clean(content.rows)))
    column = metric(content.rows)
    found = scores(content.rows, content.outcomes, content.planned, content.target)
    environment = Environment(
        loader=PackageLoader("undrift.report", "assets"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.policies["json.dumps_kwargs"] = {"separators": (",", ":")}
    read = partial(_asset, environment)
    scripts = [get_plotlyjs(), read("report.js")]
    title = ", ".join(run.name for run in content.runs)
    maps = [entry for run in content.runs if (entry := _map(run))]
    return environment.get_template("report.html").render(
        title=title,
        runs=content.runs,
        note=content.note,
        tiles=sheets.tiles(found, column, content.target),
        results=sheets.results(found, column, content.target, content.note, content.varied),
        needs=sheets.needs(found, column, content.target),
        bill=sheets.bill(found, content.settings),
        troubles=[(score.label, score.note) for score in found if score.note],
        several=any(score.seeds > 1 for score in found),
        varied=content.varied,
        data=_charts(content, column) | {"maps": maps},
        maps=maps,
        stills={
            name: _embedded(png) for name, png in stills.draw(title, content, column, maps).items()
        },
        style=Markup(read("report.css")),
        scripts=[Markup(script) for script in scripts],
        policy=" ".join(f"'sha256-{_digest(script)}'" for script in scripts),
    )


def _charts(content: Content, column: str) -> dict[str, Any]:
    """What the charts are drawn from."""
    rows = content.rows
    offered = [name for name in MEASURED if any(row.get(name) is not None for row in rows)]
    axes = [name for name in SPENT.values() if any(row.get(name) is not None for row in rows)]
    found = curves(rows)
    longest = max((len(rows) for seeds in found.values() for rows in seeds.values()), default=0)
    stride = -(-longest // POINTS) or 1
    return {
        "x": {name: SPENDING[name] for name in axes},
        "y": {
            name: {
                "title": _title(name, column, content),
                "log": name in LOGARITHMIC,
                "share": name in SHARES,
            }
            for name in offered
        },
        "judge": column,
        "target": content.target,
        "smooth": content.smooth,
        "stride": stride,
        "series": [
            {
                "label": label,
                "biased": column == "gap" and _biased(next(iter(seeds.values()))[0].get("method")),
                "seeds": {
                    seed: _columns(rows, [*axes, *offered], stride) for seed, rows in seeds.items()
                },
            }
            for label, seeds in found.items()
        ],
    }


def _title(name: str, column: str, content: Content) -> str:
    words = MEASURED | TESTED if column == "accuracy" else MEASURED
    return words[name] + f" ({content.note})" * (bool(content.note) and name in SHARES)


def _columns(rows: Sequence[Row], names: Iterable[str], stride: int) -> dict[str, list[Any]]:
    kept = [row for k, row in enumerate(rows) if k % stride == 0 or k == len(rows) - 1]
    return {name: [_short(row.get(name)) for row in kept] for name in names}


def _short(value: Any) -> Any:
    """Six digits are more than a screen shows."""
    return float(f"{value:.6g}") if isinstance(value, float) else value


def _biased(method: Any) -> bool:
    return method in registry and not registry[method].exact


def _map(run: About) -> dict[str, Any] | None:
    """The heat map of one run's partition: of many clients, every so many."""
    if run.partition is None:
        return None
    counts, classes = run.partition["counts"], run.partition["classes"]
    sizes = sorted(map(sum, counts))
    shown = range(0, len(counts), -(-len(counts) // CLIENTS))
    held = sorted(sum(n > 0 for n in row) for row in counts)
    facts = [
        f"{len(counts)} clients, {len(classes)} classes, {sum(sizes):,} samples",
        f"samples of a client: {sizes[0]:,} to {sizes[-1]:,}, median {sizes[len(sizes) // 2]:,}",
        f"classes of a client: {held[0]} to {held[-1]}, median {held[len(held) // 2]}",
        *[f"shown: {len(shown)} clients, one in {shown.step}"] * (shown.step > 1),
        *filter(None, [run.partition.get("of")]),
    ]
    return {
        "name": run.name,
        "facts": facts,
        "classes": classes,
        "clients": list(shown),
        "counts": [counts[k] for k in shown],
    }


def _asset(environment: Any, name: str) -> str:
    return environment.loader.get_source(environment, name)[0]


def _digest(script: str) -> str:
    return base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()


def _embedded(png: bytes) -> str:
    return f"data:image/png;base64,{base64.b64encode(png).decode()}"


def _clean(value: Any) -> Any:
    """The same without characters that are commands to a terminal, at any depth."""
    if isinstance(value, str):
        return value if value.isprintable() else clean(value)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        names = [field.name for field in dataclasses.fields(value) if field.name != "rows"]
        return dataclasses.replace(value, **{name: _clean(getattr(value, name)) for name in names})
    if isinstance(value, Mapping):
        return {_clean(key): _clean(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_clean(inner) for inner in value]
    return value
