"""``export``: a model of a run as a file of its own."""

from __future__ import annotations

import shutil
from pathlib import Path

from undrift._files import writing
from undrift.cli.folders import missing, place
from undrift.cli.output import FAILED, OK, refuse, result, result_json, say
from undrift.report.text import size
from undrift.runs.folder import BadFolder, Folder
from undrift.runs.models import find, read


def export(
    name: str, label: str, seed: int | None, best: bool, out: Path, overwrite: bool, as_json: bool
) -> int:
    if wrong := missing(name):
        refuse([wrong])
    try:
        outcome, source = find(Folder(place(name)), label, seed, best)
        read(source)
    except BadFolder as error:
        refuse([error], "See: undrift export --help")
    if out.is_dir():
        refuse([f"-o {out}: is a folder; give the name of a file"])
    if out.exists() and not overwrite:
        refuse([f"-o {out}: exists already; --overwrite replaces it"])
    try:
        with source.open("rb") as model, writing(out) as file:
            shutil.copyfileobj(model, file)
    except OSError as error:
        say(f"{error.filename or out}: {error.strerror or error}")
        return FAILED
    if outcome.status == "diverged":
        say(f"{label} {outcome.note or 'diverged'}")
    if as_json:
        about = outcome.best if best and outcome.best else {}
        result_json(
            {"file": str(out), "bytes": out.stat().st_size, "label": label, "method": outcome.method,
             "seed": outcome.seed, "which": "best" if best else "last", "status": outcome.status, **about}
        )  # fmt: skip
    else:
        result(str(out))
        say(f"{size(out.stat().st_size)}. To load it: safetensors.torch.load_file({str(out)!r})")
    return OK
