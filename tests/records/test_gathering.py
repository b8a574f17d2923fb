"""One run of several is what one process would have made, or it is refused in one sentence."""

import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import torch

import undrift as ud
from undrift.core.params import BadParameters
from undrift.records.folder import BadFolder, Folder
from undrift.records.part import RunPart
from undrift.runs.events import Notice
from undrift.spec.reader import load

SPEC = {
    "rounds": 6,
    "steps": 2,
    "every": 2,
    "seed": [3, 4],
    "problem": {"name": "quadratic", "clients": 4, "dim": 5},
    "method": [
        {"name": "Scaffnew", "lr": 0.02, "p": 0.5},
        {"name": "Scaffold", "lr": 0.02},
        {"name": "FedAvg", "lr": 0.02},
        {"name": "FedAvg", "label": "large step", "lr": 5.0},
        {"name": "FedLin", "lr": 0.01},
    ],
}
"""Only the first method draws at random, and the fourth diverges."""
NAMED = {**SPEC, "name": "whole"}


@pytest.fixture(autouse=True)
def place(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def parts(of, spec=NAMED, **more):
    """The folders of all parts."""
    folders = [f"part-{k}" for k in range(1, of + 1)]
    for k, folder in enumerate(folders, 1):
        ud.run_spec(spec, save=folder, part=(k, of), **more)
    return folders


def bare(rows):
    return [{name: v for name, v in row.items() if name != "seconds"} for row in rows]


def at_round(row):
    return row["label"], row["seed"], row["round"]


def files(folder, name):
    return {file.name: file.read_bytes() for file in Path(folder, name).iterdir()}


def same(one, other):
    """The same rows in the same order, outcomes and models; and the same last states."""
    before, after = ud.load(one), ud.load(other)
    assert bare(before.records) == bare(after.records)
    assert before.outcomes == after.outcomes
    assert files(one, "models") == files(other, "models")
    assert files(one, "checkpoints").keys() == files(other, "checkpoints").keys()


@pytest.mark.parametrize("of", [2, 3, 7])
def test_gathered_parts_are_what_one_process_makes(of):
    """Methods that no seed changes are dealt to several parts, and yet come out as run once."""
    ud.run_spec(NAMED, save="single/whole")
    found = ud.gather(parts(of), "whole")
    same("single/whole", "whole")
    assert found.outcomes[0].seeded and [o.same_as for o in found.outcomes[5:]] == [None, *[3] * 4]
    about = {k: v for k, v in Folder(Path("single/whole")).environment.items()}
    assert Folder(Path("whole")).environment == about
    spec = load("whole/spec.toml")
    assert about["specs"] == [spec.identity] and Folder(Path("whole")).state(spec) == "same"


def test_a_gathered_run_goes_on_from_its_last_states():
    longer, heard = NAMED | {"rounds": 10}, []
    ud.gather(parts(3), "whole")
    ud.run_spec(longer, save="whole", on_event=heard.append)
    went_on = [event for event in heard if isinstance(event, Notice) and "round 6" in event.text]
    assert len(went_on) == 5  # Scaffnew twice, and three that no seed changes
    ud.run_spec(longer, save="single/whole")
    # Rows are in the order they were recorded in.
    before, after = (
        sorted(bare(ud.load(at).records), key=at_round) for at in ("single/whole", "whole")
    )
    assert before == after and files("single/whole", "models") == files("whole", "models")
    assert ud.load("single/whole").outcomes == ud.load("whole").outcomes


@pytest.mark.skipif(os.name != "posix", reason="signals")
def test_a_part_that_was_killed_continues():
    """It kills itself at a row in the middle of its last method, by no clock."""
    program = f"""
import os, signal
import undrift as ud
from undrift.runs.events import Measured
def hear(event):
    if isinstance(event, Measured) and (event.label, event.row["round"]) == ("FedLin", 4):
        os.kill(os.getpid(), signal.SIGKILL)
if __name__ == "__main__":
    save = ud.Save("part-2", checkpoint=0)
    ud.run_spec({NAMED!r}, save=save, part=(2, 2), on_event=hear)
"""
    killed = subprocess.run([sys.executable, "-c", program], capture_output=True)
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    assert len(Folder(Path("part-2")).outcomes()) == 4
    ud.run_spec(NAMED, save="part-1", part=(1, 2))
    with pytest.raises(BadFolder, match="part-2 is not finished: undrift resume part-2"):
        ud.gather(["part-1", "part-2"], "whole")
    heard = []
    ud.resume("part-2", on_event=heard.append)
    assert any("continues from round" in str(event) for event in heard)
    ud.gather(["part-1", "part-2"], "whole")
    ud.run_spec(NAMED, save="single/whole")
    same("single/whole", "whole")


@pytest.mark.parametrize("vary", [["draws"], ["split", "draws"]])
def test_seeds_are_pooled_and_methods_stand_side_by_side(vary):
    spec = NAMED | {"vary": vary}
    first, second = (spec | {"method": SPEC["method"][at]} for at in (slice(2), slice(2, 5)))
    for k, seeds in enumerate(([3, 4], [5])):
        ud.run_spec(first | {"seed": seeds}, save=f"first-{k}")
        ud.run_spec(second | {"seed": seeds}, save=f"second-{k}")
    ud.gather(["first-0", "second-0", "first-1", "second-1"], "whole")
    ud.run_spec(spec | {"seed": [3, 4, 5]}, save="single/whole")
    same("single/whole", "whole")
    both = [Folder(Path(at)).environment for at in ("whole", "single/whole")]
    assert both[0] == both[1]
    # Seeds before others, and one run twice.
    ud.gather(["first-1", "first-0", "first-1"], "turned")
    assert ud.load("turned").spec["seed"] == [5, 3, 4]
    stands = {o.same_as for o in ud.load("turned").outcomes if o.label == "Scaffold"}
    assert stands == ({None, 5} if vary == ["draws"] else {None})


def problem_of(shift):
    H = torch.eye(4, dtype=torch.float64).expand(3, 4, 4).clone()
    b = torch.arange(12, dtype=torch.float64).reshape(3, 4) + shift
    return ud.problems.Quadratic(H, b)


def test_what_only_a_program_has_is_gathered_too():
    problem = problem_of(0)
    methods = {"avg": ud.FedAvg(lr=0.1), "new": ud.Scaffnew(lr=0.1, p=0.5)}
    how = {"rounds": 4, "steps": 2}
    for seed in (0, 1):
        ud.run(methods, problem, save=f"seed-{seed}", seed=[seed], **how)
    ud.gather(["seed-0", "seed-1"], "whole")
    runs = ud.run(methods, problem, save="whole", seed=[0, 1], **how)  # finds it there
    assert {run.status for run in runs.values()} == {"done"}
    ud.run(methods, problem, save="single/whole", seed=[0, 1], **how)
    same("single/whole", "whole")
    other = problem_of(1)
    ud.run(methods, other, save="other", seed=[2], **how)
    with pytest.raises(BadFolder, match="seed-0 and other do not belong together: data is"):
        ud.gather(["seed-0", "other"], "never")


def changed(**more):
    return NAMED | {"seed": [9]} | more


@pytest.mark.parametrize(
    ("other", "words"),
    [
        (changed(rounds=8), "rounds is 6 and 8"),
        (changed(rounds=8, seed=[3]), "rounds is 6 and 8"),
        (changed(problem={"name": "logistic"}), "problem.name is quadratic and logistic; problem."),
        (changed(problem=SPEC["problem"] | {"dim": 6}), "problem.dim is 5 and 6"),
        (changed(method=[{"name": "FedAvg", "lr": 0.01}]), "FedAvg: lr is 0.02 and 0.01"),
        (changed(target=1e-3), "target is not set and 0.001"),
    ],
)
def test_other_settings_are_refused_and_nothing_is_written(other, words):
    ud.run_spec(NAMED, save="one")
    ud.run_spec(other, save="other")
    with pytest.raises(BadFolder, match=f"^one and other do not belong together: {words}"):
        ud.gather(["one", "other"], "whole")
    assert {file.name for file in Path().iterdir()} == {"one", "other"}


def edited(folder, change):
    """A copy of a folder with another environment."""
    shutil.copytree("one", folder)
    about = Folder(Path(folder)).environment
    Path(folder, "environment.json").write_text(json.dumps(about | change))
    return folder


@pytest.mark.filterwarnings("ignore:.*changed since the run ended")
def test_other_data_and_code_are_refused_other_places_told():
    ud.run_spec(NAMED, save="one")
    with pytest.raises(
        BadFolder, match=r"one and data do not .* together: data is \w{12} and 0{12}$"
    ):
        ud.gather(["one", edited("data", {"data": "0" * 64})], "whole")
    with pytest.warns(UserWarning, match="data: cannot be compared"):
        ud.gather([edited("unknown", {"data": None})], "compared")
    with pytest.warns(UserWarning, match=r"Not all .*: torch is .*, 1.0\."):
        ud.gather(["one", edited("old", {"torch": "1.0"})], "whole")
    assert Folder(Path("whole")).environment["torch"].endswith(", 1.0")
    assert "torch is" in Path("whole/log.txt").read_text(encoding="utf-8")


@pytest.mark.filterwarnings("ignore:.*changed since the run ended")
def test_a_pair_that_is_there_twice_must_have_ended_alike():
    ud.run_spec(NAMED, save="one")
    shutil.copytree("one", "again")
    ud.gather(["one", "again"], "whole")
    same("one", "whole")
    file = Path("again/summary.json")
    summary = json.loads(file.read_text(encoding="utf-8"))
    summary["outcomes"][0]["model"] = "0" * 64
    file.write_text(json.dumps(summary))
    with pytest.raises(BadFolder, match="one and again both have Scaffnew with seed 3, and not"):
        ud.gather(["one", "again"], "never")


def test_there_must_be_something_to_gather():
    with pytest.raises(BadParameters, match="gather: no folders: give") as caught:
        ud.gather([], "whole")
    assert caught.value.problems.keys() == {"folders"} and not Path("whole").exists()


def test_what_is_missing_is_named_with_the_command_that_makes_it():
    first, _, third = parts(3)
    with pytest.raises(BadFolder) as caught:
        ud.gather([first, third], "whole")
    dealt = RunPart(2, 3).deal([m.get("label", m["name"]) for m in SPEC["method"]], [3, 4])
    words = f"{dealt[0][0]} with seed {dealt[0][1]} and {len(dealt) - 1} more: in none of"
    assert str(caught.value).startswith(words)
    command = "part 2 of 3 is missing: undrift run part-1/spec.toml --part 2/3 --out ."
    assert str(caught.value).endswith(command)
    ud.run_spec(NAMED | {"method": SPEC["method"][:1]}, save="a")
    ud.run_spec(NAMED | {"method": SPEC["method"][1:2], "seed": [3]}, save="b")
    with pytest.raises(
        BadFolder, match=r"Scaffold with seed 4: in none of a, b\. Run every method"
    ):
        ud.gather(["a", "b"], "whole")
    Path("whole").mkdir()
    with pytest.raises(BadFolder, match="whole is there already"):
        ud.gather(["a"], "whole")


def test_a_state_that_is_damaged_is_left_out_and_told():
    first, second = parts(2)
    state = Path(first, "checkpoints/0-3-6.safetensors")  # Scaffnew's with seed 3
    state.write_bytes(state.read_bytes()[:-1])
    with pytest.warns(UserWarning, match=f"{state.name}: .* cannot go on"):
        ud.gather([first, second], "whole")
    assert not Path("whole/checkpoints", state.name).exists()


def test_files_of_code_are_compared_and_copied(place):
    text = 'import undrift as ud\nclass Mine(ud.FedAvg):\n    """Own."""\n'
    spec = {**NAMED, "method": [{"name": "Mine", "file": "own/mine.py", "lr": 0.02}]}
    from undrift.spec.document import toml

    for k, folder in enumerate(("a", "b", "c")):
        (place / folder / "own").mkdir(parents=True)
        (place / folder / "own/mine.py").write_text(text + "# other\n" * (k == 2))
        (place / folder / "spec.toml").write_text(toml(spec | {"seed": [k]}))
        ud.run_spec(f"{folder}/spec.toml", save=f"run-{folder}")
    ud.gather(["run-a", "run-b"], "whole")
    assert (place / "whole/own/mine.py").read_text() == text
    assert load("whole/spec.toml").identity in Folder(Path("whole")).environment["specs"]
    with pytest.raises(BadFolder, match=r"run-a and run-c .*: own/mine.py is \w+ and \w+$"):
        ud.gather(["run-a", "run-c"], "never")
