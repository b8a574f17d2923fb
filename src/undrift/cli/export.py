"""``export``: a model of a run as a file of its own."""

from __future__ import annotations

import shutil
from argparse import Namespace
from pathlib import Path

from undrift._files import opened, writing
from undrift.cli.folders import places
from undrift.cli.output import refuse, result_as, say
from undrift.cli.parser import RUN, Parser
from undrift.records.folder import Folder
from undrift.records.models import find, read
from undrift.report.numbers import size


def add(parser: Parser) -> None:
    parser.description = (
        "Copy the model that a method of a run ended with, or its best (by the metric of best or "
        "stop in the spec, else smallest gap, else highest accuracy, else smallest loss), to a "
        "safetensors file. Of networks it is the module's state_dict, of other problems one vector "
        '"x"; where a table was standardised, also "mean" and "sd" of its columns, whose names are '
        "in the file's metadata."
    )
    parser.add_argument("run", metavar="RUN", help=RUN)
    parser.add_argument("method", metavar="METHOD", help="its label in the spec")
    parser.file("-o", "--out", required=True, help="where to: a .safetensors file")
    parser.add_argument("--seed", type=int, metavar="S", help="needed where there are several")
    parser.add_argument(
        "--best", action="store_true", help="the best model that was measured, not the last"
    )
    parser.add_argument("--overwrite", action="store_true", help="replace FILE if it exists")
    parser.json()


def main(args: Namespace) -> None:
    out: Path = args.out
    (path,) = places(args.run)
    outcome, source = find(Folder(path), args.method, args.seed, args.best)
    read(source)
    if out.suffix != ".safetensors":
        refuse([f"-o {out}: give the name of a file that ends in .safetensors"])
    if out.exists() and not args.overwrite:
        refuse([f"-o {out}: exists already; --overwrite replaces it"])
    with opened(source) as model, writing(out) as file:
        shutil.copyfileobj(model, file)
    if outcome.status == "diverged":
        say(f"{args.method} {outcome.note or 'diverged'}")
    best = outcome.best if args.best and outcome.best else {}
    about = {
        "file": str(out),
        "bytes": out.stat().st_size,
        "label": args.method,
        "method": outcome.method,
        "seed": outcome.seed,
        "which": "best" if args.best else "last",
        "status": outcome.status,
    }
    result_as(args.json, {**about, **best}, str(out))
    say(f"{size(out.stat().st_size)}. To load it: safetensors.torch.load_file({str(out)!r})")
