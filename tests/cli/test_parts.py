"""``run --part`` and ``gather``: a loop of parts in a shell makes what one command makes."""

import json
import re
from pathlib import Path

import pytest
from tests.cli.conftest import SPEC, told

import undrift as ud
from undrift.records.folder import BadFolder, Folder
from undrift.spec.errors import BadSpec


@pytest.fixture
def seeds(place):
    """The small spec with two seeds, and a third method that they change."""
    new = '[[method]]\nname = "Scaffnew"\nlr = 0.02\np = 0.5\n'
    text = SPEC.replace("rounds = 12", "rounds = 12\nseed = [0, 1]") + new
    (place / "spec.toml").write_text(text)
    return place


def table(text):
    """The words of a table, without its times."""
    return re.sub(r"\d+\.\d s", "", text).split()


def test_parts_are_run_gathered_and_printed_as_one(seeds, capsys, drawn):
    code, whole, _ = told(capsys, "run", "spec.toml", "--out", "single")
    assert code == 0
    for k in (1, 2):
        code, out, said = told(capsys, "run", "spec.toml", "--part", f"{k}/2")
        assert code == 0 and f"part {k} of 2" in said.splitlines()[0]
        assert f"mine-part-{k}-of-2 is part {k} of 2 of the methods and seeds" in " ".join(
            out.split()
        )
        assert f"Kept in runs/mine-part-{k}-of-2" in said
    parts = ["mine-part-1-of-2", "mine-part-2-of-2"]
    code, out, said = told(capsys, "gather", *parts, "-o", "runs/mine")
    assert code == 0 and table(out) == table(whole) and "Kept in runs/mine." in said
    made = {file.name for file in Path("single/mine").iterdir()}
    assert made == {file.name for file in Path("runs/mine").iterdir()} and "gap.png" in made
    # It is the run of the spec from now on.
    code, out, said = told(capsys, "run", "spec.toml")
    assert code == 0 and "holds this run already" in said and table(out) == table(whole)


def test_a_part_is_looked_at_like_any_run(seeds, capsys):
    assert told(capsys, "run", "spec.toml", "--part", "2/2")[0] == 0
    code, out, _ = told(capsys, "compare", "mine-part-2-of-2", "--json")
    found = json.loads(out)
    assert code == 0 and found["mixed"][0].startswith("mine-part-2-of-2 is part 2 of 2")
    # All that was dealt to it, and nothing that is unfinished elsewhere.
    labels = {
        label
        for label, _ in Folder(Path("runs/mine-part-2-of-2")).part.deal(
            ["FedAvg", "SCAFFOLD", "Scaffnew"], [0, 1]
        )
    }
    assert {method["label"]: method["status"] for method in found["methods"]} == dict.fromkeys(
        labels, "all rounds run"
    )
    assert told(capsys, "report", "mine-part-2-of-2")[0] == 0
    page = Path("runs/mine-part-2-of-2/report.html").read_text(encoding="utf-8")
    assert "part 2 of 2 of the methods and seeds of its spec" in page
    code, out, said = told(capsys, "run", "spec.toml", "--part", "2/2", "--json")
    assert "holds this run already" in said and json.loads(out)["part"] == [2, 2]
    code, out, _ = told(capsys, "run", "spec.toml", "--part", "1/3", "--check")
    assert code == 0 and "for part 1 of 3" in out
    assert told(capsys, "run", "spec.toml", "--part", "1/1")[0] == 0 and Path("runs/mine").is_dir()


@pytest.mark.parametrize(
    ("part", "words"),
    [
        ("0/2", "run: part = '0/2' is not allowed: give which one of how many, as 2/4"),
        ("3/2", "part = '3/2' is not allowed"),
        ("two", "as 2/4"),
        ("7/7", "part 7 of 7: there is work for 6 parts"),
    ],
)
def test_parts_that_cannot_be_are_refused(seeds, capsys, part, words):
    code, _, said = told(capsys, "run", "spec.toml", "--part", part)
    assert code == 2 and words in said and not Path("runs").exists()


def test_what_cannot_be_gathered_is_refused(seeds, capsys):
    assert told(capsys, "run", "spec.toml", "--part", "1/2")[0] == 0
    code, _, said = told(capsys, "gather", "mine-part-1-of-2", "-o", "runs/mine")
    assert code == 2 and "undrift run runs/mine-part-1-of-2/spec.toml --part 2/2 --out runs" in said
    assert not Path("runs/mine").exists()
    # And that command is right.
    spec = "runs/mine-part-1-of-2/spec.toml"
    assert told(capsys, "run", spec, "--part", "2/2", "--out", "runs")[0] == 0
    assert told(capsys, "gather", "mine-part-1-of-2", "mine-part-2-of-2", "-o", "runs/mine")[0] == 0
    code, _, said = told(capsys, "gather", "nowhere", "-o", "runs/other")
    assert code == 2 and "unknown run 'nowhere'" in said


def test_a_folder_has_one_part(seeds):
    ud.run_spec("spec.toml", save="one", part=(1, 2))
    for other in ((2, 2), (1, 1)):
        with pytest.raises(BadFolder, match="part was part 1 of 2 and is part"):
            ud.run_spec("spec.toml", save="one", part=other)
    runs = ud.run_spec("spec.toml", save=ud.Save("one", overwrite=True), part=(2, 2))
    assert Folder(Path("one")).part == (2, 2) and len(runs) == 3
    alone = ud.run_spec("spec.toml", part=(2, 2))  # in memory too
    assert [*alone] == [*runs]
    with pytest.raises(BadSpec, match="there is work for 6 parts"):
        ud.run_spec("spec.toml", part=(1, 7))


def test_jobs_share_a_part(seeds):
    ud.run_spec("spec.toml", save="one", part=(2, 4))
    ud.run_spec("spec.toml", save="two", part=(2, 4), jobs=2)
    rows = [
        [{k: v for k, v in row.items() if k != "seconds"} for row in ud.load(folder).records]
        for folder in ("one", "two")
    ]
    key = lambda row: (row["label"], row["seed"], row["round"])  # noqa: E731
    assert sorted(rows[0], key=key) == sorted(rows[1], key=key)
    assert ud.load("one").outcomes == ud.load("two").outcomes
