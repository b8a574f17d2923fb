"""How many trials of a fault ended as promised."""

from __future__ import annotations

import argparse


class Tally:
    """Trials of one fault; ``what`` says what was tried."""

    def __init__(self, name: str, what: str):
        self.name, self.what = name, what
        self.trials = 0
        self.problems: list[str] = []

    def add(self, case: str, problem: str | None) -> None:
        """Count a trial; ``problem`` is what was not as promised."""
        self.trials += 1
        if problem:
            self.problems.append(f"{case}: {problem}")

    @property
    def line(self) -> str:
        good = self.trials - len(self.problems)
        return f"{self.name}: {self.what}, {good} of {self.trials}"

    def report(self) -> int:
        """Print what went wrong, and the figure in one line; the exit code."""
        for problem in self.problems:
            print(f"  {problem}")
        print(self.line, flush=True)
        return 1 if self.problems or not self.trials else 0


def arguments(text: str | None, **counts: int) -> argparse.Namespace:
    """The command line of a module: a seed, and its ``counts``."""
    parser = argparse.ArgumentParser(
        description=text, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seed", type=int, default=0)
    for name, usual in counts.items():
        parser.add_argument(f"--{name}", type=int, default=usual)
    return parser.parse_args()
