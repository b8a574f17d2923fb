"""``run --check``: what a spec would take."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from undrift.cli.output import FAILED, OK, result, result_json, say
from undrift.records.part import WHOLE, RunPart
from undrift.report.numbers import count, duration, names, size, whole
from undrift.report.table import Table, prose
from undrift.spec.schema import Spec

if TYPE_CHECKING:
    from undrift.runs.rehearsal import Estimate

LEGEND = """\
client states: what all clients remember; vectors: per client and round, up and down
s/round, s/row: seconds to train a round and to measure a row; all rounds: at that pace, one seed"""


def rehearse(spec: Spec, part: RunPart, as_json: bool) -> int:
    from undrift.runs import rehearsal
    from undrift.runs.experiment import make

    rounds = f"{rehearsal.ROUNDS} rounds of {count(len(spec.entries), 'method')}"
    say(f"{spec.name}: {rounds} on {spec.problem_name}, nothing is kept")
    found = rehearsal.rehearse(make(spec, part=part))
    if as_json:
        result_json(dataclasses.asdict(found))
    else:
        seeds = count(len(spec.seeds), "seed") if part == WHOLE else str(part)
        result(f"{show(found.methods)}\n")
        result(
            prose(
                f"In all: about {duration(found.seconds)} for {seeds}, "
                f"{size(found.state_bytes)} of client states at a time."
            )
        )
    return FAILED if any(method.problem for method in found.methods) else OK


def show(methods: list[Estimate]) -> str:
    head = [
        "method",
        "parameters",
        "client states",
        "vectors",
        "s/round",
        "s/row",
        "all rounds",
        "outcome",
    ]
    cells = [
        [
            m.label,
            whole(m.parameters),
            size(m.state_bytes) if m.place == "device" else f"{size(m.state_bytes)}, {m.place}",
            whole(m.vectors),
            "-" if m.problem else f"{m.round_seconds:.3g}",
            "-" if m.problem else f"{m.row_seconds:.3g}",
            "-" if m.problem else duration(m.full_seconds),
            m.problem.partition(":")[0] or "runs",
        ]
        for m in methods
    ]
    notes = [f"{m.label} {m.problem}" for m in methods if m.problem]
    if slow := [m.label for m in methods if m.rows_share > 0.5]:
        notes.append(f"recording rows takes most of the time of {names(slow)}: give a larger every")
    return Table(head, cells, ["outcome"], ["\n\n".join([LEGEND, *notes])]).text()
