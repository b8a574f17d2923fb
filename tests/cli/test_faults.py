"""Folders that cannot be written: a sentence, and nothing half-written; exit code 2 where nothing
was run yet.
"""

import subprocess
import sys

from tests.cli.stopping import rows

from undrift.cli import main
from undrift.records.folder import Folder

LIMITED = """
import resource, sys
from undrift.cli import main
resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[1]), resource.RLIM_INFINITY))
try:
    code = main(sys.argv[2:])
except SystemExit as end:
    code = end.code
sys.exit(code)
"""


def limited(place, most, *words):
    """A command in a process that can only write files of so many bytes: the disk is full."""
    return subprocess.run(
        [sys.executable, "-c", LIMITED, str(most), *words],
        cwd=place,
        capture_output=True,
        text=True,
        timeout=120,
    )


def test_a_full_disk_ends_the_run_and_keeps_the_rows(place, capsys):
    done = limited(place, 5000, "run", "spec.toml", "-s", "rounds=200")
    assert done.returncode == 1 and done.stdout == "" and "Traceback" not in done.stderr
    assert (
        "runs/mine/metrics.jsonl: File too large" in done.stderr
        and "undrift resume runs/mine" in done.stderr
    )
    folder = Folder(place / "runs/mine")
    text = folder.file("metrics.jsonl").read_text()
    assert 4000 < len(text) <= 5000
    assert [row["round"] for row in folder.rows()] == list(range(text.count("\n")))
    assert not list(folder.path.rglob(".*"))
    assert main(["resume", "mine"]) == 0
    assert main(["run", "spec.toml", "-s", "rounds=200", "--out", "whole"]) == 0
    assert rows(folder.path) == rows(place / "whole/mine")
