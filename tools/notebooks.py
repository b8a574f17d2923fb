"""Run the notebooks of the site again, and save what their cells show.

    python -m tools.notebooks [NAME ...]

It needs what ``make docs`` installs; tests/docs/test_notebooks.py compares.
"""

from __future__ import annotations

import os
import sys
import sysconfig
import tempfile
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parents[1] / "docs/notebooks"
LIMIT = 240
"""Seconds of a cell."""
ABOUT = {
    "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
    "language_info": {"name": "python", "pygments_lexer": "ipython3"},
}


def executed(file: Path) -> Any:
    """A notebook after all of its cells have run in an empty folder."""
    import nbformat
    from nbclient import NotebookClient

    book = nbformat.read(file, as_version=4)
    paths = [sysconfig.get_path("scripts"), os.environ["PATH"]]
    env = os.environ | {"PATH": os.pathsep.join(paths), "PYTHONWARNINGS": "default"}
    with tempfile.TemporaryDirectory() as folder:
        where = {"metadata": {"path": folder}}
        client = NotebookClient(
            book, timeout=LIMIT, resources=where, record_timing=False, coalesce_streams=True
        )
        client.execute(env=env)
    book.metadata = nbformat.from_dict(ABOUT)  # versions differ from machine to machine
    for cell in book.cells:
        if cell.cell_type == "code":
            cell.outputs = [one for one in cell.outputs if not empty(one)]
    return book


def empty(output: Any) -> bool:
    """Whether an output is what a bar of progress leaves when it has ended."""
    return "".join(output.get("data", {"": "some"}).values()) == ""


if __name__ == "__main__":
    import nbformat

    for file in sorted(FOLDER.glob("*.ipynb")):
        if file.stem in (sys.argv[1:] or [file.stem]):
            nbformat.write(executed(file), file)
            print(file.relative_to(FOLDER.parents[1]))
