"""``demo`` shows what it promises, and its specs can be run."""

import re
from pathlib import Path

import pytest

from undrift.cli import demo, main
from undrift.cli.demo import SPECS
from undrift.records.folder import Folder
from undrift.spec.reader import load


def file(title):
    return Path(demo.__file__).with_name("demos") / SPECS[title]


@pytest.fixture(scope="module")
def shown(tmp_path_factory):
    """The folder and what was printed."""
    import contextlib
    import io

    place = tmp_path_factory.mktemp("demo")
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        assert main(["demo", "--out", str(place / "here")]) == 0
    return place / "here", out.getvalue(), err.getvalue()


def test_fedavg_stalls_and_the_others_are_exact(shown):
    place, out, _ = shown
    for title in SPECS:
        spec = load(file(title))
        last = {row["label"]: row for row in Folder(place / spec.name).rows()}
        assert last.pop("FedAvg")["gap"] > 1e-5
        assert set(last) == {"SCAFFOLD", "FedRecu", "FedCET", "Scaffnew", "DANE+", "FedRed"}
        assert all(row["gap"] <= 1e-10 for row in last.values())
        rows = [row["gap"] for row in Folder(place / spec.name).rows() if row["label"] == "FedAvg"]
        assert rows[-1] == pytest.approx(rows[len(rows) // 2], rel=1e-2)
    assert len(re.findall(r"^FedAvg +- +- +- ", out, re.MULTILINE)) == 2


def test_the_table_the_picture_and_the_next_command(shown):
    place, out, err = shown
    assert (place / "demo.png").read_bytes().startswith(b"\x89PNG")
    assert f"undrift run {place / 'hospitals.toml'}" in err and str(place / "demo.png") in err
    assert max(map(len, out.splitlines())) <= 100


def test_the_specs_are_left_for_the_reader(shown):
    place, *_ = shown
    for title in SPECS:
        spec = load(file(title))
        assert load(place / f"{spec.name}.toml").document() == spec.document()
        assert Folder(place / spec.name).state(spec) == "same"


def test_the_readme_shows_what_is_printed(shown):
    """But for the seconds, which are a machine's."""
    readme = (Path(__file__).parents[2] / "README.md").read_text(encoding="utf-8")
    (table,) = re.findall(r"^```text\n(.*?)^```$", readme, re.MULTILINE | re.DOTALL)

    def lines(text):
        return [re.sub(r"\d+\.\d s", "- s", line) for line in text.splitlines()]

    printed, expected = lines(shown[1]), lines(table)
    start = printed.index(expected[0])
    assert printed[start : start + len(expected)] == expected
