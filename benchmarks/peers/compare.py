"""undrift and its peers side by side.

    make bench-peers
    python -m benchmarks.peers.compare --only undrift plain jax --workloads mlp --cores 1

makes the peers' environments under .peers/ where they are missing, runs all contenders in turn,
several times over, on
one core and on two, and writes results.json, results.md and results.png.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import platform
import re
import signal
import statistics
import subprocess
import sys
import time
from itertools import product
from pathlib import Path
from typing import Any

from benchmarks.peers.contestants import CONTESTANTS, HERE, ROOT
from benchmarks.peers.measure import Failed, run
from benchmarks.peers.report import picture, table
from benchmarks.peers.workloads import WORKLOADS

APART = 0.15
"""Final losses further from the plain loop's than this share of it are not the same training."""
REFERENCE, OURS = "plain", "undrift"

Row = dict[str, Any]
Key = tuple[str, int, str]
"""A workload, a number of cores, and a contender."""


def main() -> int:
    asked = arguments()
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    began, load = time.monotonic(), os.getloadavg()[0]
    able, failures = prepared(asked.only)
    answers: dict[Key, list[dict[str, Any]]] = {}
    try:
        measure(asked, able, answers, failures)
    except KeyboardInterrupt:
        failures.append({"what": "the rest", "why": "stopped before its turn"})
    rows = [summary(*key, given) for key, given in answers.items()]
    if not rows:
        return 1
    for row in rows:
        compared(row, rows)
    result = {
        "taken": datetime.datetime.now().astimezone().isoformat(timespec="seconds"),
        "minutes": round((time.monotonic() - began) / 60, 1),
        "machine": {**machine(), "load_before": round(load, 2)},
        "commit": commit(),
        "workloads": {name: WORKLOADS[name].title for name in asked.workloads},
        "rows": rows,
        "failures": failures,
    }
    asked.out.mkdir(parents=True, exist_ok=True)
    (asked.out / "results.json").write_text(json.dumps(result, indent=1) + "\n")
    (asked.out / "results.md").write_text(table(result))
    picture(result, asked.out / "results.png")
    print(table(result))
    apart = [row for row in rows if row["apart"]]
    for row in apart:
        print(
            f"{row['workload']}, {row['title']}: loss {row['loss']:.3f} is not the plain loop's",
            file=sys.stderr,
        )
    return 1 if failures or apart else 0


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--only", nargs="+", choices=CONTESTANTS, default=list(CONTESTANTS), metavar="NAME"
    )
    parser.add_argument(
        "--workloads", nargs="+", choices=WORKLOADS, default=list(WORKLOADS), metavar="NAME"
    )
    parser.add_argument("--cores", nargs="+", type=int, default=[1, 2])
    parser.add_argument(
        "--repeats",
        type=int,
        help="processes of each contender in each setting; each workload has its own number",
    )
    parser.add_argument(
        "--rounds", type=int, help="timed rounds in a process; each workload has its own number"
    )
    parser.add_argument(
        "--limit", type=float, default=300, help="seconds after which a process is given up"
    )
    parser.add_argument("--out", type=Path, default=HERE / "results")
    return parser.parse_args()


def prepared(names: list[str]) -> tuple[list[str], list[dict[str, str]]]:
    """Those whose environments are there, and why the others' are not."""
    able, failures = [], []
    for name in names:
        try:
            CONTESTANTS[name].make()
            able.append(name)
        except RuntimeError as error:
            failures.append({"what": CONTESTANTS[name].title, "why": str(error)})
    return able, failures


def measure(
    asked: argparse.Namespace,
    able: list[str],
    answers: dict[Key, list[dict[str, Any]]],
    failures: list[dict[str, str]],
) -> None:
    """Add what each contender answers in each setting; one that fails there is not asked again."""
    repeats = {
        workload: asked.repeats or WORKLOADS[workload].repeats for workload in asked.workloads
    }
    failed: set[Key] = set()
    for turn in range(max(repeats.values())):
        first = turn % max(len(able), 1)
        for workload, cores, name in product(
            asked.workloads, asked.cores, able[first:] + able[:first]
        ):
            key = workload, cores, name
            if turn >= repeats[workload] or key in failed:
                continue
            rounds = 1 + (asked.rounds or WORKLOADS[workload].rounds)
            what = f"{workload}, {cores} core{'s' * (cores > 1)}, {CONTESTANTS[name].title}"
            try:
                answer = run(CONTESTANTS[name].command(workload, rounds, cores), cores, asked.limit)
            except Failed as error:
                failed.add(key)
                failures.append({"what": what, "why": str(error)})
                print(f"{what}: {error}", file=sys.stderr, flush=True)
                continue
            answers.setdefault(key, []).append(answer)
            seconds = statistics.median(answer["seconds"][1:])
            print(
                f"{turn + 1}/{repeats[workload]} {what}: {seconds:.4g} s per round",
                file=sys.stderr,
                flush=True,
            )


def summary(workload: str, cores: int, name: str, answers: list[dict[str, Any]]) -> Row:
    """All timed rounds of all processes as one; the first round of each process is told apart."""
    seconds = [s for answer in answers for s in answer["seconds"][1:]]
    return {
        "workload": workload,
        "cores": cores,
        "name": name,
        "title": CONTESTANTS[name].title,
        "median": statistics.median(seconds),
        "best": min(seconds),
        "worst": max(seconds),
        "first": statistics.median(answer["seconds"][0] for answer in answers),
        "memory": max(answer["memory"] for answer in answers),
        "loss": statistics.median(answer["loss"] for answer in answers),
        "rounds": len(answers[0]["seconds"]),
        "versions": answers[0]["versions"],
        "processes": len(answers),
        "seconds": [answer["seconds"] for answer in answers],
    }


def compared(row: Row, rows: list[Row]) -> None:
    """Add the ratios to the plain loop and to undrift in the same setting, and whether the losses
    are apart.
    """
    same = {
        r["name"]: r for r in rows if (r["workload"], r["cores"]) == (row["workload"], row["cores"])
    }
    for name in (REFERENCE, OURS):
        row[f"to_{name}"] = row["median"] / same[name]["median"] if name in same else None
    plain = same.get(REFERENCE, row)
    row["apart"] = row["rounds"] == plain["rounds"] and abs(row["loss"] / plain["loss"] - 1) > APART


def machine() -> dict[str, Any]:
    described = subprocess.run(
        ["lscpu"], capture_output=True, text=True, env={**os.environ, "LC_ALL": "C"}
    ).stdout  # /proc/cpuinfo has only numbers on aarch64
    return {
        "processor": processor(described),
        "cores": len(os.sched_getaffinity(0)),
        "system": platform.platform(),
    }


def processor(described: str) -> str:
    """Its name in what ``lscpu`` prints, else that of its architecture."""
    found = re.search(r"^Model name:[ \t]*(\S.*)$", described, re.MULTILINE)
    return found[1].strip() if found else platform.machine()


def commit() -> str:
    done = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"], cwd=ROOT, capture_output=True, text=True
    )
    return done.stdout.strip()


if __name__ == "__main__":
    raise SystemExit(main())
