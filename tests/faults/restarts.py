"""A federation for half an hour, its nodes restarted at random.

    python -m tests.faults.restarts [--minutes 30] [--every 40] [--seed 0]

A SuperNode or a worker is ended about every so many seconds, half of them killed, half of them
asked to end. Every round must be closed, or recorded as waited for, and from the fifth minute on
the memory of federate, of the nodes' minders and of the SuperLink must not grow by more than 5 %.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import tempfile
import time
from contextlib import suppress
from pathlib import Path

from tests.faults.federation import MINDER, Federation, below
from tests.faults.tally import Tally, arguments

SETTLED = 5 * 60
GROWTH = 0.05


def resident(pid: int) -> int:
    """Bytes in memory."""
    with suppress(OSError):
        pages = Path(f"/proc/{pid}/statm").read_text(encoding="utf-8").split()[1]
        return int(pages) * os.sysconf("SC_PAGE_SIZE")
    return 0


def lasting(run: Federation) -> dict[str, int]:
    """The memory of what is never restarted."""
    found = {"federate": resident(run.process.pid), "nodes": 0, "superlink": 0}
    for pid, words in below(run.process.pid).items():
        if MINDER in words:
            continue
        if " join " in words:
            found["nodes"] += resident(pid)
        elif "flower-superlink" in words:
            found["superlink"] += resident(pid)
    return found


def main() -> int:
    args = arguments(__doc__, minutes=30, every=40)
    draw, folder = random.Random(args.seed), Path(tempfile.mkdtemp(prefix="undrift-faults-"))
    tally = Tally("Restarts", f"rounds within {args.minutes} minutes")
    run = Federation(folder, rounds=100_000, every=1)
    run.working()
    began, restarts = time.monotonic(), 0
    settled: dict[str, int] = {}
    sizes: dict[str, int] = {}
    while time.monotonic() - began < 60 * args.minutes and run.process.poll() is None:
        time.sleep(draw.uniform(0.5, 1.5) * args.every)
        number = draw.choice([signal.SIGKILL, signal.SIGTERM])
        with suppress(IndexError, ProcessLookupError):
            os.kill(draw.choice(run.targets(draw.choice(["supernode", "worker"]), None)), number)
            restarts += 1
        sizes = lasting(run)
        if not settled and time.monotonic() - began > min(SETTLED, 10 * args.minutes):
            settled = sizes
    if run.process.poll() is None:
        run.process.send_signal(signal.SIGINT)
    code = run.end(180)
    rows = folder / "far" / "mine" / "metrics.jsonl"
    found = [json.loads(line) for line in rows.read_text(encoding="utf-8").splitlines()]
    rounds = [row["round"] for row in found]
    record = folder / "far" / "mine" / "federation.jsonl"
    notes = record.read_text(encoding="utf-8").splitlines() if record.exists() else []
    waits = sum('"waited for"' in line or '"asked again"' in line for line in notes)
    for k, round in enumerate(rounds):
        tally.add(f"row {k}", None if round == k else f"is of round {round}")
    for name, before in settled.items():
        growth = sizes[name] / max(before, 1) - 1
        print(f"memory of {name}: {before >> 20} MiB, then {sizes[name] >> 20} ({growth:+.1%})")
        tally.add(f"memory of {name}", f"grew by {growth:.1%}" if growth > GROWTH else None)
    tally.add("exit", None if code == 130 else f"exit code {code}")
    print(
        f"{restarts} restarts, {max(rounds, default=0)} rounds, {waits} waits and repeats recorded"
    )
    shutil.rmtree(folder)
    return tally.report()


if __name__ == "__main__":
    raise SystemExit(main())
