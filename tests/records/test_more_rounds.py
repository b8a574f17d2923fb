"""A run with more rounds goes on in its folder, from the states that it ended with."""

import itertools
from pathlib import Path

import pytest

import undrift as ud
from undrift.cli import main
from undrift.records import journal
from undrift.records.folder import BadFolder, Folder
from undrift.records.rows import key_of
from undrift.runs import experiment
from undrift.runs.events import Measured

SETTING = {"problem": "logistic", "steps": 2, "batch": 8, "every": 2, "seed": [2, 0]}
METHODS = {"avg": ud.FedAvg(lr=0.1), "scaffold": ud.Scaffold(lr=0.1)}


class Cut(BaseException):
    """The process is killed here."""


def rows(folder):
    return sorted(Folder(folder).rows(), key=key_of)


def timeless(folder):
    return [{k: v for k, v in row.items() if k != "seconds"} for row in rows(folder)]


def models(folder):
    return {path.name: path.read_bytes() for path in (folder / "models").iterdir()}


def run(place, rounds, methods=METHODS, overwrite=False, checkpoint=10.0, **more):
    save = ud.Save(place, overwrite, checkpoint)
    return ud.run(methods, save=save, rounds=rounds, **SETTING | more)


def rounds_of(place, label, seed=0):
    found = [row for row in rows(place) if (row["label"], row["seed"]) == (label, seed)]
    return [row["round"] for row in found]


def test_a_run_that_goes_on_has_what_one_run_has(tmp_path):
    longer, whole = tmp_path / "longer", tmp_path / "whole"
    run(longer, 4)
    before = rows(longer)
    runs, expected = run(longer, 10), run(whole, 10)
    assert timeless(longer) == timeless(whole) and models(longer) == models(whole)
    assert [row for row in rows(longer) if row["round"] <= 4] == before  # not run again
    assert [*runs] == [*expected]
    assert all((runs[key].x == expected[key].x).all() for key in runs)
    assert Folder(longer).record().outcomes == Folder(whole).record().outcomes


def test_the_last_row_of_the_shorter_run_stays(tmp_path):
    run(tmp_path, 3, overwrite=True)
    run(tmp_path, 6)
    assert rounds_of(tmp_path, "avg") == [0, 2, 3, 4, 6]


@pytest.mark.parametrize(
    ("change", "keys"),
    [
        ({"methods": {"avg": ud.FedAvg(lr=0.1)}}, ["method.scaffold"]),
        ({"seed": [2, 0, 1]}, ["seed"]),
        ({"steps": 3, "rounds": 9}, ["rounds", "steps"]),
    ],
)
def test_other_changes_are_refused_by_their_names(tmp_path, change, keys):
    run(tmp_path, 4)
    before = rows(tmp_path)
    with pytest.raises(BadFolder) as refused:
        run(tmp_path, **{"rounds": 4, **change})
    assert all(key in str(refused.value) for key in keys)
    assert rows(tmp_path) == before and Folder(tmp_path).complete


def test_what_ended_otherwise_stays_as_it_is(tmp_path):
    methods = {"wild": ud.FedAvg(lr=1e9), "avg": ud.FedAvg(lr=0.1)}
    run(tmp_path, 4, methods, seed=[0])
    ended = Folder(tmp_path).record().outcomes[0]
    before = rounds_of(tmp_path, "wild")
    run(tmp_path, 8, methods, seed=[0])
    assert ended.status == "diverged" and Folder(tmp_path).record().outcomes[0] == ended
    assert rounds_of(tmp_path, "wild") == before
    assert rounds_of(tmp_path, "avg") == [0, 2, 4, 6, 8]


def test_methods_that_no_seed_changes_go_on_once(tmp_path):
    setting = {"problem": "quadratic", "batch": None}
    run(tmp_path / "longer", 4, **setting)
    run(tmp_path / "longer", 8, **setting)
    run(tmp_path / "whole", 8, **setting)
    assert timeless(tmp_path / "longer") == timeless(tmp_path / "whole")
    again = [one.same_as for one in Folder(tmp_path / "longer").record().outcomes]
    assert again == [None, None, 2, 2]


@pytest.mark.parametrize("ended", [1, 2])
def test_a_run_that_was_stopped_may_get_more_rounds_too(tmp_path, ended):
    stopped, whole = tmp_path / "stopped", tmp_path / "whole"
    left = itertools.count(1)

    def stop(event):
        if isinstance(event, Measured) and next(left) > 3 * ended + 1:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(stopped, 4, callbacks=ud.Events(stop), checkpoint=0)
    assert len(Folder(stopped).outcomes()) == ended
    run(stopped, 8)
    run(whole, 8)
    assert timeless(stopped) == timeless(whole) and models(stopped) == models(whole)


@pytest.mark.parametrize("rounds", [2, 6])
def test_without_its_states_a_run_does_not_go_on(tmp_path, monkeypatch, rounds):
    monkeypatch.setattr(experiment, "LASTING", 1)
    run(tmp_path, 4)
    assert not (tmp_path / "checkpoints").exists()
    before = rows(tmp_path)
    with pytest.raises(BadFolder, match="only where the states that it ended with were kept"):
        run(tmp_path, rounds)
    assert rows(tmp_path) == before and Folder(tmp_path).complete


def test_a_damaged_state_is_passed_over_and_the_rounds_run_again(tmp_path):
    run(tmp_path / "longer", 4)
    for file in (tmp_path / "longer" / "checkpoints").iterdir():
        file.write_bytes(file.read_bytes()[:-1] + b"!")
    told = []
    run(tmp_path / "longer", 8, callbacks=ud.Events(lambda event: told.append(str(event))))
    run(tmp_path / "whole", 8)
    assert timeless(tmp_path / "longer") == timeless(tmp_path / "whole")
    assert sum("digest does not match" in text for text in told) == 4


@pytest.mark.parametrize("moment", range(8))
def test_cut_short_at_any_moment_nothing_is_lost(tmp_path, monkeypatch, moment):
    place, left = tmp_path / "r", [moment]
    run(place, 4, seed=[0])

    def counted(function):
        def call(*given, **options):
            if left[0] == 0:
                raise Cut
            left[0] -= 1
            return function(*given, **options)

        return call

    with monkeypatch.context() as patch:
        patch.setattr(journal.Journal, "write", counted(journal.Journal.write))
        patch.setattr(Path, "unlink", counted(Path.unlink))
        with pytest.raises(Cut):
            run(place, 8, seed=[0])
    Folder(place).record()
    assert all(rounds_of(place, label)[:3] == [0, 2, 4] for label in METHODS)
    run(place, 8, seed=[0])
    run(tmp_path / "whole", 8, seed=[0])
    assert timeless(place) == timeless(tmp_path / "whole")


SPEC = """
name = "spec"
rounds = 4
every = 2
batch = 8
steps = 2
seed = [0, 1]
[problem]
name = "logistic"
[[method]]
name = "FedAvg"
lr = 0.1
[[method]]
name = "SCAFFOLD"
lr = 0.1
"""


@pytest.mark.covering(1)
@pytest.mark.parametrize("flags", [[], ["--jobs", "2"]])
def test_on_the_command_line(tmp_path, capsys, flags):
    spec = tmp_path / "spec.toml"
    spec.write_text(SPEC)
    words = ["run", str(spec), "--out", str(tmp_path / "longer")]
    assert main([*words, *flags]) == 0
    assert (tmp_path / "longer/spec/checkpoints").is_dir()
    assert main([*words, *flags, "-s", "rounds=8"]) == 0
    assert main(["run", str(spec), "--out", str(tmp_path / "whole"), "-s", "rounds=8"]) == 0
    assert timeless(tmp_path / "longer" / "spec") == timeless(tmp_path / "whole" / "spec")
    capsys.readouterr()
    with pytest.raises(SystemExit):
        main(words)
    assert "no fewer rounds than it had" in capsys.readouterr().err
