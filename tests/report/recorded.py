"""A recorded run of which every number is known."""

import json
import math
from pathlib import Path

from undrift.core.stopping import Goal
from undrift.records import differences
from undrift.records.folder import Folder, Outcome
from undrift.report import summary
from undrift.report.comparison import Comparison, RunOnDisk
from undrift.runs.clients import spreads
from undrift.spec.reader import parse

ROUNDS, SEEDS = 10, (0, 1)
RATE = {"FedAvg": 0.7, "SCAFFOLD": 0.1}
"""The gap of round k with seed s is rate^k (1 + s)."""
TARGET = 1.5e-5


SPEC = f"""\
name = "known"
rounds = {ROUNDS}
steps = 3
seed = [0, 1]
target = {TARGET}
smooth = 4
[problem]
name = "logistic"
clients = 4
[[method]]
name = "FedAvg"
lr = 0.02
[[method]]
name = "Scaffold"
label = "SCAFFOLD"
lr = 0.02
"""
HOSTILE = (
    "<img src=x onerror=hacked()>",
    "</script><script>hacked()</script> & <b>bold</b> \x1b[31m{{ 7 * 7 }} $x$ '\"",
)


def summarise(rows, target=None, outcomes=None, planned=None, rounds=None):
    """Summaries of rows; without outcomes all have ended."""
    ends = ended(rows) if outcomes is None else outcomes
    found = {}
    for label, seed in [(row["label"], row["seed"]) for row in rows] + [one.key for one in ends]:
        found.setdefault(label, {})[seed] = None
    return summary.summarise(rows, target, ends, planned or found, rounds)


def against(rows, outcomes, column, target, baseline):
    """Differences of rows; without outcomes all have ended."""
    ends = ended(rows) if outcomes is None else outcomes
    return differences.against(rows, ends, Goal(metric=column), target, baseline)


def ended(rows) -> list[Outcome]:
    found = {(row["label"], row["seed"]): str(row.get("method", "")) for row in rows}
    return [Outcome(label, method, seed, "done", {}) for (label, seed), method in found.items()]


def row(label: str, method: str, rate: float, seed: int, k: int) -> dict:
    spent = {"vectors": 4, "vectors_up": 2, "vectors_down": 2, "bytes_up": 100, "bytes_down": 300}
    spent |= {"gradients": 12, "iterations": 3, "syncs": 1, "seconds": 0.5 * (1 + seed)}
    return {
        "label": label,
        "method": method,
        "seed": seed,
        "round": k,
        "gap": rate**k * (1 + seed),
        "loss": 2 + rate**k,
        "accuracy": k / 20 + seed / 100,
        "drift": 0.1 * rate**k,
        **{name: each * k for name, each in spent.items()},
    }


def fares(rate: float, seed: int, k: int, clients: int) -> dict:
    """Client i has an accuracy of (1 - rate^k) (i + 1) / clients; half of them a local one of 1."""
    accuracy = [(1 - rate**k) * (i + 1) / clients for i in range(clients)]
    loss = [2 + rate**k * (i + seed) for i in range(clients)]
    local = [1.0 if i % 2 else math.nan for i in range(clients)]
    return {"round": k, "of": "test", "loss": loss, "accuracy": accuracy, "local_accuracy": local}


def record(
    path: Path,
    labels: tuple[str, str] = ("FedAvg", "SCAFFOLD"),
    ended: bool = True,
    clients: int = 0,
    **changes: object,
) -> Folder:
    """SCAFFOLD's rows end at the target, FedAvg's with the rounds; ``changes`` are made to every
    row. So many ``clients`` are measured.
    """
    folder = Folder(path)
    about = {"undrift": "0.0.9", "python": "3", "note": "", "metric_samples": "train"}
    folder.start(parse(SPEC), about)
    outcomes = []
    for seed in SEEDS:
        for label, rate in RATE.items():
            method = {"SCAFFOLD": "Scaffold"}.get(label, label)
            for k in range(ROUNDS + 1):
                known = row(label, method, rate, seed, k)
                fared = fares(rate, seed, k, clients) if clients else None
                columns = known | (spreads(fared) if fared else {}) | changes
                folder.append({n: v for n, v in columns.items() if v is not None}, fared)
                if known["gap"] <= TARGET:
                    break
            status = "reached" if known["gap"] <= TARGET else "done"
            outcomes.append(Outcome(label, method, seed, status, {"lr": 0.02}))
    if ended:
        folder.finish(outcomes)
    else:
        folder.ended(outcomes[0])
        folder.close()
    return folder


def share(folder: Folder, clients: int = 3, classes: int = 2) -> list[list[int]]:
    """Client i has i + c + 1 samples of class c."""
    counts = [[i + c + 1 for c in range(classes)] for i in range(clients)]
    folder.write(
        "partition.json",
        json.dumps({"classes": [f"class {c}" for c in range(classes)], "counts": counts}),
    )
    return counts


def rename(folder: Folder) -> None:
    """Give the methods names that no spec may have, but a file on disk can."""
    for name in ("metrics.jsonl", "summary.json", "spec.toml"):
        text = folder.file(name).read_text()
        for old, new in zip(RATE, HOSTILE, strict=True):
            head = "label = " if name == "spec.toml" else '"label": '
            text = text.replace(f'{head}"{old}"', head + json.dumps(new))
        folder.file(name).write_text(text)


def comparison(rows, target=None, note="", samples=None, document=None) -> Comparison:
    """Rows that no folder has, as if they were of one run."""
    about = {"note": note, "metric_samples": samples}
    names = {row["label"]: row.get("method", "") for row in rows}
    usual = {"method": [{"label": label, "name": name} for label, name in names.items()]}
    run = RunOnDisk(None, "one", "", document or usual, rows, [], [], [], about)
    return Comparison(run.declared.settled(*rows), [run], target)
