"""A report: one HTML file that needs no network, and no script that it does not carry."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterable, Sequence
from importlib.resources import files
from itertools import chain

from undrift._files import finite
from undrift.core.stopping import of_some
from undrift.plots.columns import BOUND_OF, LOGARITHMIC, MEASURED_ON, SHARES, WORDS
from undrift.records.differences import curves
from undrift.records.folder import PYTHON, Row
from undrift.records.part import WHOLE
from undrift.records.rows import UNCHANGED
from undrift.report import tables
from undrift.report.clients import heat_map, left_out, spreads
from undrift.report.comparison import Comparison, RunOnDisk, other_problems
from undrift.report.numbers import count
from undrift.report.summary import SPENT, with_bytes
from undrift.spec.schema import varied

MEASURED = {
    "gap": "gap, f(x) − f*",
    "accuracy": "accuracy, %",
    "top5": "top-5 accuracy, %",
    "f1": "F1",
    "auc": "AUC",
    "balanced_accuracy": "balanced accuracy",
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


def page(runs: Comparison, baseline: str | None = None) -> str:
    """The report as HTML."""
    from jinja2 import Environment, PackageLoader, StrictUndefined
    from markupsafe import Markup
    from plotly.offline import get_plotlyjs

    environment = Environment(
        loader=PackageLoader("undrift.report", "assets"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.policies["json.dumps_kwargs"] = {"separators": (",", ":")}
    assets = files("undrift.report").joinpath("assets")
    scripts = [get_plotlyjs(), assets.joinpath("report.js").read_text(encoding="utf-8")]
    found, chosen = runs.summaries, runs.baseline(baseline)
    clients = [row for run in runs.runs for row in run.clients]
    absent = [row for run in runs.runs for row in run.left_out]
    samples = " or ".join(sorted({row["of"] for row in clients}))
    maps = [held for run in runs.runs if (held := heat_map(run))]
    compared = runs.labels if len(runs.labels) <= BASELINES else [chosen]
    return environment.get_template("report.html").render(
        title=runs.title,
        runs=[about(run) for run in runs.runs],
        note=runs.note,
        tiles=[]  # of several problems there are no winners
        if other_problems(runs.runs)
        else tables.tiles(found, runs.goal, runs.target, runs.samples),
        results=runs.results(wide=True),
        differences={label: table for label in compared if (table := runs.differences(label))},
        baseline=chosen,
        clients=spreads(found, samples),
        parameters=tables.parameters(found, runs.settings),
        left_out=left_out(absent, runs.rows) if absent else None,
        troubles=[(s.label, s.note) for s in found if s.note and tables.kind(s.statuses) == "bad"],
        several=any(summary.seeds > 1 for summary in found),
        varied=runs.varied,
        bounds=runs.bound_notes,
        drifts=any(row.get("drift") for row in runs.rows),
        data=finite(_charts(runs) | {"maps": maps}),
        maps=maps,
        style=Markup(assets.joinpath("report.css").read_text(encoding="utf-8")),
        scripts=[Markup(script) for script in scripts],
        policy=" ".join(
            f"'sha256-{base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()}'"
            for script in scripts
        ),
    )


def about(run: RunOnDisk) -> dict[str, object]:
    """What a report says of one run, apart from its numbers."""
    spec = run.folder.file("spec.toml")
    return {
        "name": run.title,
        "facts": facts(run),
        "spec": spec.read_text(encoding="utf-8", errors="replace") if spec.is_file() else "",
        "environment": run.environment,
        "from_python": PYTHON in run.problem,
    }


def facts(run: RunOnDisk) -> list[str]:
    """The problem, the clients, the methods, the seeds and the rounds of a run, in words."""
    document = run.document
    problem, seeds = document.get("problem", {}), document.get("seed", [0])
    clients, cohort = problem.get("clients"), document.get("cohort", {}).get("size")
    each = f", {cohort} in a round" if cohort else ""
    named = ", ".join(filter(None, (problem.get("name"), problem.get("data"))))
    rounds = document.get("rounds", 0)
    rule = document.get("aggregation", {}).get("name", "mean")
    vary = f" that vary {varied(document)}" if len(seeds) > 1 else ""
    found = {
        named or "unknown problem": True,
        f"{count(clients, 'client')}{each}": bool(clients),
        count(len(document.get("method", [])), "method"): True,
        UNCHANGED if run.unchanged else f"{count(len(seeds), 'seed')}{vary}": True,
        str(run.part): run.part != WHOLE,
        count(rounds, "round"): bool(rounds),
        f"{rule} instead of the mean": rule != "mean",
        f"undrift {run.environment.get('undrift', '')}": True,
    }
    return [text for text, holds in found.items() if holds]


def _charts(runs: Comparison) -> dict[str, object]:
    """What the charts are drawn from."""
    rows = [*map(with_bytes, [*runs.rows, *runs.bounds])]
    measured = {name for row in rows for name, value in row.items() if value is not None}
    words = {**MEASURED, **MEASURED_ON[runs.samples]}
    words.setdefault(runs.column, runs.column)
    offered = [name for name in words if name in measured]
    axes = [name for name in SPENT.values() if name in measured]
    found = curves(rows)
    longest = max((len(curve) for seeds in found.values() for curve in seeds.values()), default=0)
    stride = -(-longest // POINTS) or 1
    if runs.note:
        words |= {name: f"{words[name]} ({runs.note})" for name in SHARES}
    return {
        "x": {name: SPENDING[name] for name in axes},
        "y": {
            name: {"title": words[name], "log": name in LOGARITHMIC, "share": name in SHARES}
            for name in offered
        },
        "judge": runs.column,
        "target": runs.target,
        "smooth": runs.smooth,
        "stride": stride,
        "series": [
            {
                "label": label,
                "biased": label in runs.biased,
                "bounds": next(iter(seeds.values()))[0].get(BOUND_OF),
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
    # Six digits are more than a screen shows.
    found: dict[str, list[object]] = {
        name: [float(f"{v:.6g}") if isinstance(v := row.get(name), float) else v for row in kept]
        for name in names
    }
    some: list[object] = [of_some(row) for row in kept]
    return found | {"some": some} if any(some) else found
