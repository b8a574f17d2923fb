"""A report: one HTML file that needs no network, and no script that it does not carry."""

from __future__ import annotations

import base64
import dataclasses
import hashlib
import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from importlib.resources import files
from itertools import chain
from typing import Any

from undrift.core.problem import OF_OWN_MODELS
from undrift.core.stopping import of_some
from undrift.plots.columns import LOGARITHMIC, MEASURED_ON, SHARES, WORDS, metric
from undrift.records.differences import against, curves
from undrift.records.folder import Row
from undrift.report import pictures, tables
from undrift.report.against import alike
from undrift.report.clients import about as samples
from undrift.report.clients import measures
from undrift.report.content import Content
from undrift.report.figures import biased
from undrift.report.numbers import clients_csv, rows_csv
from undrift.report.summary import SPENT, complete, summarise
from undrift.report.text import clean

MEASURED = {
    "gap": "gap, f(x) − f*",
    "accuracy": "accuracy, %",
    "top5": "top-5 accuracy, %",
    "loss": "loss, f(x)",
    "train_loss": "training loss",
    "train_accuracy": "training accuracy, %",
    "train_top5": "top-5 training accuracy, %",
    "grad_norm": "gradient, ‖∇f(x)‖",
    "distance": "distance, ‖x − x*‖",
    "drift": "drift, mean squared distance",
}
"""Columns that can be drawn, in the order they are offered."""
SPENDING = WORDS | {"bytes": "bytes up and down, all clients", "seconds": "seconds of training"}
BASELINES = 12
"""Methods up to which each can be chosen as the baseline."""
POINTS = 1500
"""Points of a curve; longer ones are thinned."""


def page(content: Content) -> str:
    """The report as HTML."""
    from jinja2 import Environment, PackageLoader, StrictUndefined
    from markupsafe import Markup
    from plotly.offline import get_plotlyjs

    content = dataclasses.replace(_clean(content), rows=complete(_clean(content.rows)))
    column, target = metric(content.rows), content.target
    found = summarise(content.rows, target, content.outcomes, content.planned, content.rounds)
    environment = Environment(
        loader=PackageLoader("undrift.report", "assets"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.policies["json.dumps_kwargs"] = {"separators": (",", ":")}
    scripts = [get_plotlyjs(), _asset("report.js")]
    title = ", ".join(run.name for run in content.runs)
    failed = {summary.label for summary in found if summary.diverged}
    maps = [
        pictures.heat_map(run.name, run.partition, _without(failed, run.clients))
        for run in content.runs
        if run.partition
    ]
    clients = [row for run in content.runs for row in run.clients]
    measured = measures(_without(failed, clients), content.rows)
    stills = pictures.draw(title, content, column, maps, measured)
    csv, stride = rows_csv(content.rows)
    of = samples({row["label"]: row["of"] for row in clients})
    return environment.get_template("report.html").render(
        title=title,
        runs=content.runs,
        note=content.note,
        tiles=[]  # of several problems there are no winners
        if len({*content.problems.values()}) > 1
        else tables.tiles(found, column, target, content.samples),
        results=tables.results(
            found, column, target, content.note, content.varied, content.samples, content.mixed
        ),
        differences=_differences(content, column),
        baseline=content.baseline,
        needs=tables.needs(found, column, target),
        fares=tables.fares(found, of),
        own=any(one["name"].startswith(OF_OWN_MODELS) for one in measured),
        parameters=tables.parameters(found, content.settings),
        files=_files(title, csv, _without(failed, clients)),
        csv_stride=stride,
        bill=tables.bill(found, content.settings),
        left_out=tables.left_out(content.left_out, content.rows),
        troubles=[(s.label, s.note) for s in found if s.note and tables.kind(s.statuses) == "bad"],
        several=any(summary.seeds > 1 for summary in found),
        varied=content.varied,
        data=_charts(content, column) | {"maps": maps, "clients": measured},
        maps=maps,
        stills={name: f"data:image/png;base64,{_base64(png)}" for name, png in stills.items()},
        style=Markup(_asset("report.css")),
        scripts=[Markup(script) for script in scripts],
        policy=" ".join(
            f"'sha256-{_base64(hashlib.sha256(script.encode()).digest())}'" for script in scripts
        ),
    )


def _without(labels: Collection[str], rows: Iterable[Row]) -> list[Row]:
    return [row for row in rows if row["label"] not in labels]


def _differences(content: Content, column: str) -> dict[str, tables.Sheet]:
    """Baseline -> the others against it; of many methods, against the chosen one alone."""
    labels = [*dict.fromkeys(row["label"] for row in content.rows)]
    chosen = labels if len(labels) <= BASELINES else [content.baseline]
    found: dict[str, tables.Sheet] = {}
    for label in chosen:
        rows = alike(content.rows, content.problems, label)
        others = against(rows, content.outcomes, column, content.target, label)
        if sheet := tables.differences(others, column):
            found[label] = sheet
    return found


def _files(title: str, csv: str, clients: Sequence[Row]) -> list[tuple[str, str, str]]:
    """Files to save: their names, what they have, and their content in base64."""
    stem = title.replace(", ", "-")
    found = [(f"{stem}.csv", "Every recorded row", csv)]
    if clients:
        text = "Each client's numbers at the end"
        found.append((f"{stem}-clients.csv", text, clients_csv(clients)))
    return found


def _charts(content: Content, column: str) -> dict[str, object]:
    """What the charts are drawn from."""
    rows = content.rows
    measured = {name for row in rows for name, value in row.items() if value is not None}
    offered = [name for name in MEASURED if name in measured]
    axes = [name for name in SPENT.values() if name in measured]
    found, grey = curves(rows), biased({"": rows}, content.settings)
    longest = max((len(curve) for seeds in found.values() for curve in seeds.values()), default=0)
    stride = -(-longest // POINTS) or 1
    words = {**MEASURED, **MEASURED_ON[content.samples]}
    return {
        "x": {name: SPENDING[name] for name in axes},
        "y": {
            name: {
                "title": f"{words[name]} ({content.note})"
                if content.note and name in SHARES
                else words[name],
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
                "biased": label in grey,
                "some": any(map(of_some, chain(*seeds.values()))),
                "seeds": {
                    seed: _columns(curve, [*axes, *offered], stride)
                    for seed, curve in seeds.items()
                },
            }
            for label, seeds in found.items()
        ],
    }


def _columns(rows: Sequence[Row], names: Iterable[str], stride: int) -> dict[str, list[object]]:
    kept = [row for k, row in enumerate(rows) if k % stride == 0 or k == len(rows) - 1]
    found = {name: [_short(row.get(name)) for row in kept] for name in names}
    some: list[object] = [of_some(row) for row in kept]
    return found | {"some": some} if any(some) else found


def _short(value: object) -> object:
    """Six digits are more than a screen shows; what is not finite has no place on it."""
    if not isinstance(value, float):
        return value
    return float(f"{value:.6g}") if math.isfinite(value) else None


def _asset(name: str) -> str:
    return files("undrift.report").joinpath("assets", name).read_text(encoding="utf-8")


def _base64(content: bytes) -> str:
    return base64.b64encode(content).decode()


def _clean(value: Any) -> Any:
    """The same value without characters that could command a terminal, at any depth."""
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
