"""``demo``: client drift, and what it costs to undo it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from undrift.cli.output import FAILED, OK, result, say
from undrift.cli.stop import Stop
from undrift.core.params import hints
from undrift.report.ascii_chart import chart
from undrift.report.summary import curves, print_summaries, summarise
from undrift.report.text import columns, prose
from undrift.runs.folder import Folder, Row
from undrift.spec.reader import parse
from undrift.spec.schema import Entry, Spec

CANCER = """\
# Regularised logistic regression on the Wisconsin breast cancer data (569 samples, 30 features,
# comes with
# scikit-learn), split unevenly among ten clients. Condition number 177.
name = "breast-cancer"
rounds = 300
steps = 10
target = 1e-10

[problem]
name = "logistic"
data = "breast-cancer"
clients = 10
partition = "dirichlet"
beta = 0.3
seed = 1
l2 = 0.05

# One step size for the four methods that share their local steps: 0.9/L, fourteen times what theory
# grants FedRecu.
[[method]]
name = "FedAvg"
lr = 0.1

[[method]]
name = "Scaffold"
label = "SCAFFOLD"
lr = 0.1

[[method]]
name = "FedRecu"
lr = 0.1

[[method]]
name = "FedCET"
lr = 0.1
c = 1.0          # c lr = 1/steps, as in practice; the lr of its theory is 80,000 times smaller

[[method]]
name = "Scaffnew"
lr = "theory"
p = "theory"

[[method]]
name = "DANEPlus"
label = "DANE+"
lam = "theory"
lr = "theory"
mu = "theory"

[[method]]
name = "FedRed"
eta = "theory"
lam = "theory"
p = "theory"
"""
QUADRATIC = """\
# Ten clients with different quadratics of condition number 32.
name = "quadratic"
rounds = 150
steps = 10
target = 1e-10

[problem]
name = "quadratic"
clients = 10
dim = 30
L = 100.0
heterogeneity = 0.1

# One step size for the four methods that share their local steps: 0.2/L.
[[method]]
name = "FedAvg"
lr = 0.002

[[method]]
name = "Scaffold"
label = "SCAFFOLD"
lr = 0.002

[[method]]
name = "FedRecu"
lr = 0.002

[[method]]
name = "FedCET"
lr = 0.002
c = 50.0         # c lr = 1/steps, as in practice

[[method]]
name = "Scaffnew"
lr = "theory"
p = "theory"

[[method]]
name = "DANEPlus"
label = "DANE+"
lam = "theory"
lr = "theory"
mu = "theory"

[[method]]
name = "FedRed"
eta = "theory"
lam = "theory"
p = "theory"
"""
SPECS = {
    "Logistic regression, breast cancer data, 10 clients": CANCER,
    "Quadratic, 10 clients": QUADRATIC,
}
LEGEND = """\
rounds, vectors and gradients: spent until f(x) - f* <= 1e-10 (- if never)
vectors: of model size, up and down, per client; gradients: of all clients together

FedAvg stalls where the drifts of its clients balance. \
SCAFFOLD, FedRecu and FedCET take the same step, larger than their theory grants, and stay exact; \
FedCET sends half as much."""
CHART = ("FedAvg", "FedCET")
TARGET = 1e-10


def demo(out: Path) -> int:
    say("Loading torch, then running seven methods on two federations: a few seconds in all.")
    runs = {}
    try:
        for title, text in SPECS.items():
            spec = parse(text)
            runs[title] = perform(spec, text, out)
            tell(title, spec, runs[title])
        draw(runs, out / "demo.png")
    except OSError as error:
        say(f"{error.filename or out}: {error.strerror or error}")
        return FAILED
    legend(out)
    return OK


def perform(spec: Spec, text: str, out: Path) -> list[Row]:
    """Run one of the specs into a folder of its own."""
    from undrift.cli.experiment import make
    from undrift.cli.progress import progress
    from undrift.runs.environment import environment

    experiment, folder, bar = make(spec), Folder(out / spec.name), progress(quiet=True)
    folder.start(spec, environment(), [])
    (out / f"{spec.name}.toml").write_text(text, encoding="utf-8")
    try:
        with Stop() as stop:
            outcomes = list(experiment.perform(folder, bar, stop))
        if stop.asked:
            raise KeyboardInterrupt(stop.number)
        folder.finish(outcomes)
    finally:
        bar.close()
        folder.close()
    return folder.rows()


def tell(title: str, spec: Spec, rows: list[Row]) -> None:
    settings = {entry.label: words(entry) for entry in spec.entries}
    result(f"\n{title}\n")
    result(
        print_summaries(summarise(rows, TARGET), TARGET, last=("settings", settings), legend=False)
    )
    if title == next(iter(SPECS)):
        found = curves(rows)
        points = {name: [(row["round"], row["gap"]) for row in found[name][0]] for name in CHART}
        width = int(min(columns(), 80)) - 20  # beside the curves stand numbers and names
        result(
            f"\nf(x) - f* of {CHART[0]} and of {CHART[1]}, at the same step size\n\n{chart(points, width)}"
        )


def words(entry: Entry) -> str:
    """What was set by hand and what theory set."""
    values: dict[str, Any] = {
        k: v for k, v in entry.given.items() if k in hints(type(entry.method))
    }
    theory = [key for key in values if key in entry.method.open_fields()]
    hand = [f"{key} = {value:g}" for key, value in values.items() if key not in theory]
    return ", ".join(hand + [f"theory: {', '.join(theory)}"] * bool(theory))


def draw(runs: dict[str, list[Row]], path: Path) -> None:
    from undrift.report.figures import panels, save

    save(panels(runs, TARGET), path)


def legend(out: Path) -> None:
    result("")
    result(prose(LEGEND))
    say(f"\nPicture: {out / 'demo.png'}")
    say(f"Next:    undrift run {out / 'breast-cancer.toml'} -s problem.beta=0.1")
    say("         undrift show FedCET")
