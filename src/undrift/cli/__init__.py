"""The command line. This page is all of it; each verb's work is in the module of its name, loaded when it is used."""

from __future__ import annotations

from enum import Enum
from pathlib import Path
from typing import Annotated

import typer

EXIT_CODES = (
    "Exit codes: 0 all is well; 1 every method failed or diverged; 2 bad input, nothing was run; 130 interrupted."
)
DOCUMENTS = "Results go to standard output, talk and progress to standard error."

app = typer.Typer(
    name="undrift",
    help="Federated optimisation without client drift. Start with: undrift demo",
    epilog=f"{EXIT_CODES} {DOCUMENTS}",
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    add_completion=False,
    no_args_is_help=True,
)


class Kind(str, Enum):
    methods = "methods"
    problems = "problems"


Json = Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")]


def main() -> None:
    """The entry point of ``undrift``."""
    app(prog_name="undrift")


def _version(asked: bool) -> None:
    if asked:
        from undrift import __version__

        typer.echo(f"undrift {__version__}")
        raise typer.Exit


@app.callback()
def top(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    pass


@app.command(epilog=EXIT_CODES)
def demo(
    out: Annotated[Path, typer.Option(help="Folder for the picture, the specs and the recorded runs.")] = Path("demo"),
) -> None:
    """See client drift, and eight methods without it, in a few seconds.

    FedAvg stalls at its bias; the corrected methods reach a gap of 1e-10, on real data and on a quadratic.
    Nothing is downloaded.
    """
    from undrift.cli import demo

    demo.main(out)


@app.command(epilog=EXIT_CODES)
def run(
    spec: Annotated[Path, typer.Argument(metavar="SPEC", help="TOML file that says what to run.")],
    change: Annotated[
        list[str] | None,
        typer.Option(
            "-s",
            "--set",
            metavar="KEY=VALUE",
            help="Change a value of the spec: rounds=50, problem.clients=20, or method.lr=0.05 for all methods with an lr.",
        ),
    ] = None,
    out: Annotated[Path, typer.Option(help="The run's folder is made in this one.")] = Path("runs"),
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace an earlier run of the same name.")] = False,
    json: Json = False,
) -> None:
    """Run every method of a spec with every seed, and keep the results in a folder.

    The folder holds spec.toml, environment.json, metrics.jsonl, metrics.parquet, summary.json, log.txt and gap.png.
    Ctrl-C ends the run after the current round and keeps what was measured; twice stops at once.
    """
    from undrift.cli import run

    run.main(spec, change or [], out, overwrite, json)


@app.command("list")
def list_(
    kind: Annotated[Kind, typer.Argument(metavar="methods|problems", help="What to list.")],
    json: Json = False,
) -> None:
    """List the methods with what they cost, or the named problems."""
    from undrift.cli import listing

    listing.problems(json) if kind is Kind.problems else listing.methods(json)


@app.command()
def show(
    method: Annotated[str, typer.Argument(metavar="METHOD", help="A name of `undrift list methods`.")],
    json: Json = False,
) -> None:
    """Show a method: its update, hyper-parameters, costs, assumptions and source."""
    from undrift.cli import listing

    listing.show(method, json)


@app.command()
def compare(
    runs: Annotated[list[Path], typer.Argument(metavar="RUN...", help="Folders of runs, or their names in runs/.")],
    target: Annotated[
        float | None,
        typer.Option(help="Count what was spent until the gap is this small (default: the specs', else 1e-6 of the first)."),
    ] = None,
    plot: Annotated[Path | None, typer.Option(metavar="FILE", help="Also draw the curves to this file.")] = None,
    json: Json = False,
) -> None:
    """Compare recorded runs: what each method needed to reach a target, as means over seeds."""
    from undrift.cli import compare

    compare.main(runs, target, plot, json)
