"""``tables``: tables of the papers, printed values beside ours."""

from __future__ import annotations

import dataclasses

from undrift.cli.talk import OK, refuse, result, result_json
from undrift.core.params import unknown
from undrift.papers.tables import items, render, table


def tables(item: str | None, as_json: bool) -> int:
    if item is not None and item not in items():
        refuse([unknown("table", item, items())])
    names = items() if item is None else [item]
    if as_json:
        result_json({name: dataclasses.asdict(table(name)) for name in names})
    else:
        result("\n".join(render(name, "text") for name in names).rstrip())
    return OK
