"""Mutation trial: flip one sign or drop one term in a method, and see who notices.

    python benchmarks/mutants.py [file ...]

Every mutant lives in its own temporary copy of src/ and tests/. There the check battery runs on the
methods of the
mutated file, and so do the golden curves, equivalences and bounds of tests/methods (four slow tests
only where their
name has the file's). An unmutated copy goes first and has to pass everything. Exit code 1 if a
mutant survives, or if
one that is to be noticed three times is not; 2 if the unmutated copy fails.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parent.parent
METHODS = Path("src/undrift/methods")
SECONDS = 150
SLOW = (
    "test_bounds.py::test_daneplus_theorem_4",
    "test_equivalences.py::test_row_12_on_logistic_regression",
    "test_equivalences.py::test_row_16_scaffold_is_exact_with_partial_participation",
    "test_equivalences.py::test_row_19_where_fedlin_may_compress",
)


class Mutant(NamedTuple):
    """One change of one method's file; ``text`` must occur there exactly once."""

    file: str
    text: str
    replacement: str
    what: str
    at_least: int = 1
    """How many checks and tests have to fail."""

    def apply(self, tree: Path) -> None:
        path = tree / METHODS / f"{self.file}.py"
        source = path.read_text()
        if source.count(self.text) != 1:
            raise SystemExit(
                f"{path.name}: {self.text!r} occurs {source.count(self.text)} times, not once"
            )
        path.write_text(source.replace(self.text, self.replacement))


class Outcome(NamedTuple):
    """What failed."""

    checks: list[str]
    tests: list[str]

    @property
    def names(self) -> list[str]:
        return [f"battery {check}" for check in self.checks] + self.tests


MUTANTS = [
    Mutant(
        "scaffold",
        "grad(y) - me.c + got.c",
        "grad(y) + me.c - got.c",
        "control variate's sign flipped",
        3,
    ),
    Mutant("fedrecu", "self.lr * (g - y.g)", "self.lr * g", "previous gradient dropped", 3),
    Mutant("fedcet", "me.d + self.c * (", "me.d - self.c * (", "dual step's sign flipped"),
    Mutant("fedred", "(grad(y) - h)", "(grad(y) + h)", "drift correction's sign flipped"),
    Mutant("daneplus", "grad(v) - h + self.lam * (v - x)", "grad(v) - h", "proximal term dropped"),
    Mutant("fedspeed", "g = me.g - (y", "g = me.g + (y", "prox-correction's sign flipped"),
    Mutant("fedacg", "x=s.x + self.lam * s.m", "x=s.x", "look-ahead dropped: FedAvgM"),
    Mutant(
        "feddyn", "up.dy - h / self.alpha", "up.dy + h / self.alpha", "server's dual sign flipped"
    ),
    Mutant("feddc", "dc = -got.c - dy", "dc = -dy", "server's variate dropped"),
    Mutant("fedadmm", "me.y + self.rho * (w", "me.y - self.rho * (w", "dual step's sign flipped"),
    Mutant("scaffnew", "me.h + self.p", "me.h - self.p", "control variate's sign flipped"),
    Mutant("fedlin", "grad(y) - me.g + got.g", "grad(y) + got.g", "own anchor gradient dropped"),
    Mutant("fedcm", "d=-up.dy", "d=up.dy", "direction's sign flipped"),
    Mutant("extra", "u = 2 * end.x - end.before", "u = end.x", "extrapolation dropped"),
    Mutant("mime", "grad(me.x) + got.c", "grad(me.x)", "anchor's mean gradient dropped"),
    Mutant("fedpd", "x = me.y + self.eta * me.l", "x = me.y", "multiplier dropped from the upload"),
    Mutant("dane", "h = me.g - got.g", "h = got.g - me.g", "drift correction's sign flipped"),
    Mutant(
        "svrp",
        "self.eta + f.grad(got.w)",
        "self.eta - f.grad(got.w)",
        "own anchor gradient's sign flipped",
    ),
    Mutant("celgd", "grad(w) - grad(s.w)", "grad(w)", "previous gradient dropped"),
    Mutant(
        "mimemvr", "c - (1 - self.a) * f.grad(got.before)", "c", "previous mean gradient dropped"
    ),
    Mutant(
        "scaffoldm",
        "(m - got.u) / self.beta",
        "(m + got.u) / self.beta",
        "mixed direction's sign flipped",
    ),
    Mutant(
        "sonata",
        "me.g - got.g + self.beta",
        "me.g + got.g + self.beta",
        "mean gradient's sign flipped",
    ),
    Mutant(
        "fedavgm", "self.beta * s.m + up.dy", "up.dy - self.beta * s.m", "momentum's sign flipped"
    ),
    Mutant("fedprox", "prox=self.mu", "prox=0.0", "proximal term dropped"),
]


def experiment(mutant: Mutant | None, files: Sequence[str]) -> Outcome:
    """What fails in a copy of the tree with ``mutant`` applied."""
    with tempfile.TemporaryDirectory() as folder:
        tree = Path(folder)
        shutil.copy(ROOT / "pyproject.toml", tree)
        for part in ("src", "tests"):
            shutil.copytree(ROOT / part, tree / part)
        for part in ("benchmarks", "docs", "tools"):  # which tests of methods look at
            (tree / part).symlink_to(ROOT / part)
        if mutant:
            mutant.apply(tree)
        paths = os.pathsep.join((str(tree / "src"), str(tree)))
        command = [sys.executable, __file__, "--trial", *files]
        settings = os.environ | {"PYTHONPATH": paths, "OMP_NUM_THREADS": "1"}
        try:
            done = subprocess.run(
                command, cwd=tree, env=settings, capture_output=True, text=True, timeout=SECONDS
            )
        except subprocess.TimeoutExpired:
            return Outcome([f"no end in {SECONDS} s"], [])
    if done.returncode:
        raise RuntimeError(f"{' '.join(files)}: the trial itself broke\n{done.stdout}{done.stderr}")
    return Outcome(**json.loads(done.stdout.splitlines()[-1]))


def trial(files: Sequence[str]) -> None:
    """Inside a copy: the battery on the methods of ``files``, then tests/methods; the failures as
    JSON.
    """
    import pytest
    from hypothesis import Phase, settings

    import undrift.methods
    from undrift.check import CHECKS
    from undrift.check.checks import Inapplicable
    from undrift.core import registry

    if not Path(undrift.methods.__file__).is_relative_to(Path.cwd()):
        raise SystemExit("the copy is not what is imported")
    found = Failures()
    homes = {f"undrift.methods.{file}" for file in files}
    for cls in [cls for cls in registry.values() if cls.__module__ in homes]:
        for name, check in CHECKS.items():
            try:
                check(cls)
            except Inapplicable:
                continue
            except Exception:  # a mutant may also break NumPy's linear algebra
                found.checks.append(f"{cls.__name__}.{name}")
    settings.register_profile(
        "trial", derandomize=True, database=None, phases=[Phase.explicit, Phase.generate]
    )
    settings.load_profile("trial")
    skipped = [
        f"--deselect=tests/methods/{t}" for t in SLOW if len(files) > 1 or f"_{files[0]}_" not in t
    ]
    pytest.main(
        ["tests/methods", "-q", "--tb=no", "-p", "no:cacheprovider", *skipped], plugins=[found]
    )
    print(json.dumps({"checks": found.checks, "tests": found.tests}))


class Failures:
    """A pytest plugin that remembers what failed."""

    def __init__(self) -> None:
        self.checks: list[str] = []
        self.tests: list[str] = []

    def pytest_runtest_logreport(self, report: Any) -> None:
        if report.failed:
            self.tests.append(report.nodeid.removeprefix("tests/methods/"))

    def pytest_collectreport(self, report: Any) -> None:
        self.pytest_runtest_logreport(report)


def main(files: Sequence[str]) -> int:
    started = time.perf_counter()
    mutants = [m for m in MUTANTS if not files or m.file in files]
    with ThreadPoolExecutor(2) as pool:
        clean = pool.submit(experiment, None, [m.file for m in mutants])
        outcomes = list(pool.map(lambda m: experiment(m, [m.file]), mutants))
    if clean.result().names:
        print("the unmutated methods fail:", *clean.result().names, sep="\n  ")
        return 2
    pairs = list(zip(mutants, outcomes, strict=True))
    print(f"{'mutant':52s} {'verdict':8s} tests  checks of the battery")
    for mutant, found in pairs:
        verdict = "caught" if found.names else "SURVIVED"
        checks = ", ".join(found.checks) or "-"
        print(
            f"{mutant.file + ': ' + mutant.what:52s} {verdict:8s} {len(found.tests):5d}  {checks}"
        )
    for mutant, found in pairs:
        if mutant.at_least > 1:
            failed = f"{len(found.names)} fail, {mutant.at_least} must"
            print(f"\n{mutant.file}: {mutant.what}; {failed}:")
            print(*(f"  {name}" for name in found.names), sep="\n")
    caught, alone = sum(bool(o.names) for o in outcomes), sum(bool(o.checks) for o in outcomes)
    spent = time.perf_counter() - started
    print(f"\n{caught} of {len(mutants)} caught, {alone} by the battery alone; {spent:.0f} s")
    return int(any(len(found.names) < mutant.at_least for mutant, found in pairs))


if __name__ == "__main__":
    if sys.argv[1:2] == ["--trial"]:
        trial(sys.argv[2:])
    else:
        sys.exit(main(sys.argv[1:]))
