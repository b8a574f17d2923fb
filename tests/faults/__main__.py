"""Every fault, one after another, and a table of the figures.

    python -m tests.faults [--only NAME ...] [--seed 0]

Each is a module with its own figure and exit code; see docs/reliability.md.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time

FAULTS = {
    "tests.faults.kills": "SIGKILL at random instants and inside writes",
    "tests.faults.ranks": "SIGKILL of one of several processes",
    "tests.faults.folder": "damaged checkpoints",
    "tests.faults.frames": "mutated messages",
    "tests.faults.clients": "a bad client among ten",
    "tests.faults.rounds": "all clients bad, or one that is needed",
    "tests.faults.memories": "drop-outs and means of memories",
    "tests.faults.dropouts": "drop-outs over 500 rounds",
    "tests.faults.signs": "clients that flip signs",
    "tests.faults.divergence": "divergence",
    "benchmarks.judging": "what judging costs",
}
"""Module -> the fault."""


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    names = {module.rpartition(".")[2]: module for module in FAULTS}
    parser.add_argument("--only", metavar="NAME", nargs="+", choices=names, default=[*names])
    parser.add_argument("--seed", default="0")
    arguments = parser.parse_args()
    rows, failed = [], False
    for name in arguments.only:
        module, began = names[name], time.monotonic()
        seeded = ["--seed", arguments.seed] if module.startswith("tests") else []
        words = [sys.executable, "-m", module, *seeded]
        done = subprocess.run(words, stdout=subprocess.PIPE, text=True, check=False)
        print(done.stdout, end="", flush=True)
        *_, last = done.stdout.splitlines() or [""]
        figure = last.removeprefix(f"{name}: ") if done.returncode == 0 else f"FAILED: {last}"
        rows.append(f"| {FAULTS[module]} | {figure} | {time.monotonic() - began:.0f} s |")
        failed |= done.returncode != 0
    print("\n".join(["", "| fault | figure | time |", "|---|---|---|", *rows]))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
