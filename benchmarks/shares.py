"""Every method with seven steps and five seeds: in parts, of which one is killed, and in one run.

    python -m benchmarks.shares [--rounds 20] [--parts 4] [--methods 36] [--folder FOLDER]

One process runs the spec whole. Then a process for each part runs it again; the second is ended by
SIGKILL in the middle, and the same command continues it. `undrift gather` makes one run of them,
which must have the same rows as the first, bit for bit but for seconds, the same outcomes and
models, and the same table.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from undrift.core.params import values
from undrift.methods import registry
from undrift.records.folder import Folder
from undrift.spec.document import toml
from undrift.spec.schema import as_toml
from undrift.tuning.recipes import by_step

STEPS = [2.0**-k for k in range(7)]
"""Local steps s, in units of 1/L."""
SEEDS = [0, 1, 2, 3, 4]
CLIENTS, DIM, L, LOCAL = 20, 10, 10.0, 4


def spec(rounds: int, names: list[str]) -> str:
    """Quadratics with noisy gradients, so that seeds change most methods; some they do not."""
    methods = [
        {"name": name, "label": f"{name} s={s:g}", **values(by_step(name, s / L, LOCAL, DIM, True))}
        for name in names
        for s in STEPS
    ]
    problem = {"name": "quadratic", "clients": CLIENTS, "dim": DIM, "L": L, "noise": 0.1}
    top = {"name": "mine", "rounds": rounds, "steps": LOCAL, "seed": SEEDS}
    return toml(as_toml({**top, "problem": problem, "method": methods}))


def command(*words: str) -> subprocess.Popen[str]:
    """A command of undrift's; what it says goes to a file, for nobody reads it meanwhile."""
    with open("log.txt", "a", encoding="utf-8") as log:
        return subprocess.Popen(
            [sys.executable, "-m", "undrift", *words],
            stdout=subprocess.PIPE,
            stderr=log,
            encoding="utf-8",
            env=os.environ | {"OMP_NUM_THREADS": "1"},
        )


def ended(process: subprocess.Popen[str]) -> str:
    """What it printed, without times."""
    out, _ = process.communicate()
    if process.returncode:
        sys.exit(f"{process.args} failed: see log.txt")
    return re.sub(r" +\d+\.\d s", "", out)


def killed(process: subprocess.Popen[str], folder: Path, pairs: int) -> int:
    """End a part once a third of its pairs have; how many had."""
    while process.poll() is None:
        if len(done := Folder(folder).outcomes()) >= pairs / 3:
            process.kill()
            process.communicate()
            return len(done)
        time.sleep(0.05)
    sys.exit("it ended before it was killed")


def bare(folder: Path) -> list[dict[str, object]]:
    return [{k: v for k, v in row.items() if k != "seconds"} for row in Folder(folder).rows()]


def models(folder: Path) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in (folder / "models").iterdir()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--parts", type=int, default=4)
    parser.add_argument("--methods", type=int, default=len(registry))
    parser.add_argument("--folder", type=Path)
    args = parser.parse_args()
    names = sorted(registry)[: args.methods]
    os.chdir(args.folder or tempfile.mkdtemp(prefix="shares-"))
    Path("spec.toml").write_text(spec(args.rounds, names), encoding="utf-8")
    pairs = len(names) * len(STEPS) * len(SEEDS)
    print(f"{len(names)} methods x {len(STEPS)} steps x {len(SEEDS)} seeds: {pairs} pairs")

    start = time.perf_counter()
    table = ended(command("run", "spec.toml", "--out", "single"))
    print(f"one process: {time.perf_counter() - start:.0f} s")

    start = time.perf_counter()
    shares = [f"{k}/{args.parts}" for k in range(1, args.parts + 1)]
    processes = {k: command("run", "spec.toml", "--part", k) for k in shares}
    folders = [Path(f"runs/mine-part-{k.replace('/', '-of-')}") for k in shares]
    had = killed(processes.pop(shares[1]), folders[1], pairs // args.parts)
    again = command("run", "spec.toml", "--part", shares[1])
    for process in (*processes.values(), again):
        ended(process)
    print(f"{args.parts} parts: {time.perf_counter() - start:.0f} s; one killed after {had} pairs")

    start = time.perf_counter()
    gathered = ended(command("gather", *map(str, folders), "-o", "runs/mine"))
    print(f"gathered: {time.perf_counter() - start:.0f} s")
    one, other = Path("single/mine"), Path("runs/mine")
    outcomes = Folder(one).outcomes()
    same = {
        "rows": bare(one) == bare(other),
        "outcomes": outcomes == Folder(other).outcomes(),
        "models": models(one) == models(other),
        "table": table == gathered,
    }
    run = [outcome for outcome in outcomes if outcome.same_as is None]
    statuses = {
        status: sum(o.status == status for o in outcomes) for status in {o.status for o in outcomes}
    }
    print(json.dumps({"rows": len(bare(one)), "run": len(run), "statuses": statuses, "same": same}))
    if not all(same.values()):
        sys.exit("not the same")


if __name__ == "__main__":
    main()
