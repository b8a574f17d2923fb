"""Tuned methods: what is found, what it cost, and the spec that says so."""

import dataclasses
import itertools
import json
from concurrent.futures import Future

import pytest

import undrift as ud
from undrift.cli import main
from undrift.records.folder import BadFolder
from undrift.report.comparison import unequal
from undrift.spec.errors import BadSpec, Origin
from undrift.spec.reader import Reader, load
from undrift.spec.space import TuningNote
from undrift.spec.user_files import execute
from undrift.tuning.found import Tunings
from undrift.tuning.tune import begin, tune_spec

GRID = [0.01, 0.02, 0.04, 0.08]


def spec(**changes):
    document = {
        "name": "s",
        "rounds": 24,
        "steps": 2,
        "problem": {"name": "quadratic", "clients": 5, "dim": 4},
        "method": [
            {"name": "FedAvg", "lr": GRID},
            {"name": "Scaffold", "lr": 0.05},
            {"name": "FedCET", "lr": 0.02, "c": "theory"},
        ],
    }
    return Reader(document | changes, Origin("spec"), tune=True).spec()


def runs(label, lr, **changes):
    """The last gap of a single run, with the seed of trials."""
    of = {"FedAvg": ud.FedAvg, "Scaffold": ud.Scaffold}[label]
    problem = {"name": "quadratic", "clients": 5, "dim": 4}
    return ud.run(of(lr=lr), problem, rounds=24, steps=2, seed=1_000_000).history.last["gap"]


def test_each_method_has_the_best_that_single_runs_would_show():
    found = tune_spec(spec(tune={"extend": False}))
    assert list(found) == ["FedAvg", "Scaffold", "FedCET"] and found.by == "gap after 24 rounds"
    ends = {lr: runs("FedAvg", lr) for lr in GRID}
    assert found["FedAvg"].best["lr"] == min(ends, key=ends.get)
    tried = found["Scaffold"].grid["lr"]
    assert tried == pytest.approx([0.05 * 2.0**k for k in range(-3, 4)])


def test_the_tuned_spec_runs_and_says_how_it_was_tuned(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    found = tune_spec(spec(), tmp_path / "t")
    again = load(tmp_path / "t/tuned.toml")
    assert {e.label: e.method.lr for e in again.entries} == {
        label: one.best["lr"] for label, one in found.items()
    }
    assert again.entries[2].method.open_fields() == ["c"] and again.seeds == [0]
    assert str(again.entries[0].tuned).startswith("lr ")
    assert again.entries[0].tuned.gradients == found["FedAvg"].gradients
    done = ud.run_spec(tmp_path / "t/tuned.toml", save="runs/s")
    assert done["Scaffold", 0].method.lr == found["Scaffold"].best["lr"]
    for name in ("tuned.toml", "tried.jsonl", "tuning.md", "response.png"):
        assert (tmp_path / "t" / name).stat().st_size > 100
    rows = [json.loads(line) for line in (tmp_path / "t/tried.jsonl").open()]
    assert sum(row["gradients"] for row in rows) == sum(one.gradients for one in found.values())


def test_what_theory_sets_follows_what_is_tuned():
    found = tune_spec(spec(tune={"extend": False}))["FedCET"]
    given = ud.FedCET(lr=found.best["lr"], c="theory")
    problem = ud.problems.build("quadratic", clients=5, dim=4)
    assert found.method == ud.run(given, problem, rounds=1, steps=2).method


def test_a_search_that_was_cut_short_goes_on(tmp_path):
    def cut(label, runs):
        if label == "Scaffold":
            raise KeyboardInterrupt

    whole = tune_spec(spec(), tmp_path / "whole")
    with pytest.raises(KeyboardInterrupt):
        tune_spec(spec(), tmp_path / "cut", cut)
    heard = []
    again = tune_spec(spec(), tmp_path / "cut", lambda label, _: heard.append(label))
    for label, one in whole.items():
        assert again[label].best == one.best and repr(again[label].tried) == repr(one.tried)
    for name in ("tuned.toml", "tried.jsonl", "tuning.md"):
        assert (tmp_path / "cut" / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()


def test_another_search_does_not_go_on_in_its_folder(tmp_path):
    begin(spec(), tmp_path / "t")
    begin(spec(), tmp_path / "t")
    with pytest.raises(BadFolder, match="another search"):
        begin(spec(rounds=30), tmp_path / "t")
    begin(spec(rounds=30), tmp_path / "t", afresh=True)


OWN = """
from undrift.methods._shared import LocalSGD


class Own(LocalSGD):
    \"\"\"Averages.\"\"\"

    def server(self, x0):
        return self.Server(x=x0)

    def merge(self, s, up, cohort):
        return self.Server(x=s.x + up.dy)
"""


def test_a_search_goes_on_neither_with_other_code_nor_where_it_is_to_begin_again(
    tmp_path, monkeypatch, capsys
):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "own.py").write_text(OWN)
    file = tmp_path / "own.toml"
    file.write_text(
        'name = "own"\nrounds = 8\nsteps = 2\n[problem]\nname = "quadratic"\nclients = 3\n'
        '[[method]]\nfile = "own.py"\nname = "Own"\nlr = [0.01, 0.02]\n'
    )
    assert main(["tune", str(file)]) == 0
    (kept,) = (tmp_path / "runs/own-tuning/tried").iterdir()
    before = kept.read_bytes()
    (tmp_path / "own.py").write_text(OWN.replace("+ up.dy", "+ 0.01 * up.dy"))
    with pytest.raises(SystemExit, match="2"):
        main(["tune", str(file)])
    assert kept.read_bytes() == before
    assert "by its own.py: --overwrite replaces it" in capsys.readouterr().err
    assert main(["tune", str(file), "--overwrite"]) == 0
    assert kept.read_bytes() != before


def test_a_search_of_a_program_knows_its_code_by_its_source(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    found = []
    for change in ("+ up.dy", "+ up.dy", "+ 0.5 * up.dy"):
        (tmp_path / "own.py").write_text(OWN.replace("+ up.dy", change))
        own = execute(tmp_path / "own.py").methods["Own"]
        try:
            found.append(ud.tune(own(lr=0.02), "quadratic", rounds=8, steps=2, save="t"))
        except BadFolder as error:
            assert "space.toml" in str(error)
    assert len(found) == 2


def test_only_what_was_asked_for_makes_tuning_unequal():
    extended = TuningNote(over="lr", settings=15, gradients=90_000, by="gap", asked=7)
    early = TuningNote(over="lr", settings=7, gradients=900, by="gap", asked=7)
    fewer = TuningNote(over="lr", settings=7, gradients=90_000, by="gap", asked=3)
    assert unequal({"a": extended, "b": early}) == "" == unequal({"a": None})
    said = "unequal tuning: 3 settings of b, 0 settings of c, others had up to 7 to try"
    assert unequal({"a": extended, "b": fewer, "c": None}) == said


def test_what_a_method_refuses_was_not_tried():
    """A grid of a share is extended beyond 1, where there is nothing to try."""
    problem = ud.problems.build("quadratic", clients=3, dim=3)
    one = ud.tune(ud.FedCM(lr=0.02), problem, {"alpha": [0.5, 1.0]}, rounds=8, steps=2)["FedCM"]
    assert "refused" in {run.status for run in one.tried}
    assert one.grid == {"alpha": [0.5, 1.0]} and one.settings == 2


def test_seeds_of_trials_are_not_those_that_are_shown():
    with pytest.raises(BadSpec, match="seed 3"):
        tune_spec(spec(seed=[3], tune={"seed": [2, 3]}))


class AtOnce:
    """An executor in this process that takes plain data alone, as those of clusters do."""

    def __init__(self):
        self.submitted = []

    def submit(self, function, *given):
        self.submitted.append(json.loads(json.dumps(given)))
        future = Future()
        future.set_result(function(*given))
        return future


def test_methods_are_shared_among_processes(tmp_path):
    alone, pool = tune_spec(spec(), tmp_path / "alone"), AtOnce()
    begin(spec(), tmp_path / "shared")
    shared = tune_spec(spec(), tmp_path / "shared", jobs=pool)
    assert len(pool.submitted) == 3 and repr({**shared}) == repr({**alone})
    own = ud.problems.build("quadratic", clients=5, dim=4)
    with pytest.raises(ud.BadParameters, match="named problem"):
        ud.tune(ud.FedAvg(lr=0.1), own, rounds=4, save=tmp_path / "own", jobs=pool)
    given = {"rounds": 4, "clients": 5, "dim": 4, "save": tmp_path / "named"}
    found = ud.tune(ud.FedAvg(lr=0.1), "quadratic", {"lr": GRID}, jobs=pool, **given)
    assert len(pool.submitted) == 4 and found["FedAvg"].settings >= 4
    assert (tmp_path / "named/tuned.toml").exists()


@pytest.mark.parametrize(
    ("space", "said"),
    [([0.1, 0.2], "a table, as"), ({"lrr": [0.1, 0.2]}, "there are .*lr")],
)
def test_what_is_no_space_is_told_with_what_is_one(space, said):
    with pytest.raises(ud.BadParameters, match=said):
        ud.tune(ud.FedAvg(lr=0.1), "quadratic", space, rounds=2)


def test_goals():
    assert tune_spec(spec(target=1e-2)).by == "rounds to gap <= 0.01"
    assert tune_spec(spec(target=1e-2, tune={"goal": "loss"})).by == "loss after 24 rounds"
    assert tune_spec(spec(tune={"goal": "loss", "target": 0.5})).by == "rounds to loss <= 0.5"
    assert tune_spec(spec(tune={"rounds": 8})).by == "gap after 8 rounds"


def test_a_budget_ends_each_search():
    found = tune_spec(spec(rounds=400, tune={"gradients": 3000}))
    for one in found.values():
        assert 3000 <= one.gradients < 4500


@pytest.mark.parametrize("sampler", ["random", "tpe"])
def test_settings_are_drawn(sampler):
    if sampler != "random":
        pytest.importorskip("optuna", reason="needs the extra undrift[optuna]")
    method = [{"name": "FedProx", "lr": {"log": [1e-3, 0.1]}, "mu": {"linear": [0, 2]}}]
    how = {"samples": 12, "sampler": sampler}
    found = tune_spec(spec(method=method, tune=how))["FedProx"]
    assert found.settings == 12 and found.open_ends == []
    assert all(1e-3 <= lr <= 0.1 for lr in found.grid["lr"])
    again = tune_spec(spec(method=method, tune=how))["FedProx"]
    assert repr(again.tried) == repr(found.tried)


def test_without_optuna_its_samplers_are_refused(monkeypatch):
    import sys

    monkeypatch.setitem(sys.modules, "optuna", None)
    method = [{"name": "FedAvg", "lr": {"log": [1e-3, 0.1]}}]
    with pytest.raises(ud.BadParameters, match=r"undrift\[optuna\]"):
        tune_spec(spec(method=method, tune={"sampler": "gp"}))


def test_splits_are_drawn_anew_for_each_seed_of_trials():
    found = tune_spec(spec(vary=["split"], tune={"seed": [7, 8], "extend": False}))
    ends = {one.seed: one.value for one in found["FedAvg"].tried if dict(one.setting)["lr"] == 0.01}
    assert len({*ends.values()}) == 2


def test_in_python(tmp_path):
    methods = {"a": ud.FedAvg(lr=0.1), "b": ud.FedProx(lr=0.1, mu=0.1)}
    problem = ud.problems.build("quadratic", clients=5, dim=4)
    space = {"lr": GRID, "mu": (0.1, 1.0)}
    found = ud.tune(methods, problem, space, rounds=16, steps=2, save=tmp_path / "t")
    assert found["a"].best.keys() == {"lr"} and found["b"].best.keys() == {"lr", "mu"}
    runs = ud.run(found.methods, problem, rounds=16, steps=2)
    assert runs["a", 0].method == found["a"].method
    assert "best" in str(found) and (tmp_path / "t/response.png").exists()
    again = ud.tune(methods, problem, space, rounds=16, steps=2, save=tmp_path / "t")
    assert {label: one.best for label, one in again.items()} == {
        label: one.best for label, one in found.items()
    }
    with pytest.raises(BadFolder, match="another search"):
        ud.tune(methods, problem, space, rounds=17, steps=2, save=tmp_path / "t")
    own = ud.tune(methods, problem, {"a": {"lr": [0.3]}}, rounds=4, tuning={"extend": False})
    assert own["a"].best == {"lr": 0.3} and len(own["b"].grid["lr"]) == 7
    with pytest.raises(ud.BadParameters, match="mu"):
        ud.tune(methods, problem, {"a": {"mu": [0.1]}, "b": {"mu": [0.1]}}, rounds=4)
    with pytest.raises(ud.BadParameters, match="stesp"):
        ud.tune(methods, problem, rounds=4, stesp=3)


def test_the_edge_of_divergence_is_the_least_value_above_the_best_that_failed():
    found = tune_spec(
        spec(rounds=80, method=[{"name": "GD", "lr": [0.05, 0.1, 0.2, 0.4, 0.8]}], steps=1)
    )
    one = found["GD"]
    failed = {dict(t.setting)["lr"] for t in one.tried if t.status == "diverged"}
    assert failed and one.edge("lr") == min(failed) and one.best["lr"] < min(failed)
    cells = found.table().column("diverges at")
    assert str(cells[0]) == f"lr {min(failed):g}"
    assert dataclasses.replace(one, tried=[]).edge("lr") is None


@pytest.mark.parametrize("lr", [[10, 20], [0.001, 0.002]])
def test_a_search_without_a_good_setting_ends_too(lr, tmp_path):
    tuning = {"extend": False}
    found = tune_spec(
        spec(method=[{"name": "FedAvg", "lr": lr}], target=1e-12, tune=tuning), tmp_path
    )
    assert (tmp_path / "tuned.toml").exists() and (tmp_path / "response.png").exists()
    shown = str(found.table().column(found.by)[0])
    assert shown == ("diverged" if lr[0] == 10 else "-")


def test_a_grid_in_which_all_diverge_goes_on_downwards():
    found = tune_spec(spec(method=[{"name": "FedAvg", "lr": [10, 20]}]))["FedAvg"]
    assert found.best["lr"] < 0.3 and found.open_ends == []


def test_two_numbers_at_their_ends_are_extended_together():
    method = [{"name": "FedProx", "lr": [0.001, 0.002], "mu": [1.0, 2.0]}]
    found = tune_spec(spec(method=method))["FedProx"]
    settings = {(dict(t.setting)["lr"], dict(t.setting)["mu"]) for t in found.tried}
    assert (0.004, 2.0) in settings and (0.002, 0.5) in settings and (0.004, 0.5) in settings


def test_a_goal_that_is_not_measured_and_a_name_that_no_method_has_are_refused():
    with pytest.raises(ud.BadParameters, match="accuracy"):
        tune_spec(spec(tune={"goal": "accuracy"}))
    with pytest.raises(ud.BadParameters, match="lrr"):
        ud.tune(ud.FedAvg(lr=0.1), "quadratic", {"lrr": [1, 2]}, rounds=3)


def test_of_settings_that_reach_a_target_alike_the_cheaper_is_best():
    method = [{"name": "FedAvg", "lr": 0.02, "steps": {"values": [4, 5]}}]
    found = tune_spec(spec(method=method, target=10.0))["FedAvg"]
    assert {t.reached for t in found.tried} == {1} and found.best["steps"] == 4


@pytest.mark.parametrize("steps", [[0.0125, 0.025, 0.05, 0.1, 0.2], [0.001, 0.01, 0.1]])
def test_labels_of_values_do_not_overlap(steps):
    method = [{"name": "FedAvg", "lr": steps}]
    figure = tune_spec(spec(method=method, tune={"extend": False})).figure()
    figure.draw_without_rendering()
    ax = figure.axes[0]
    low, high = ax.get_xlim()
    labels = [tick.label1 for tick in ax.xaxis.get_major_ticks() if low <= tick.get_loc() <= high]
    spans = [label.get_window_extent() for label in labels]
    assert len(spans) >= 3 and not ax.xaxis.get_minorticklocs().size
    assert all(one.x1 < other.x0 for one, other in itertools.pairwise(spans))


def test_the_picture_shows_what_was_chosen_by():
    """SCAFFOLD reaches the target, so rounds are drawn; of FedAvg alone the gap is."""
    method = [{"name": name, "lr": [0.001, 0.03]} for name in ("FedAvg", "Scaffold")]
    found = tune_spec(spec(method=method, rounds=40, target=1e-4, tune={"extend": False}))
    reached = [one.reached for one in found["Scaffold"].tried]
    assert found["FedAvg"].result.reached is None and reached[0] is None and reached[1] > 1
    (ax,) = found.figure().axes
    assert ax.get_ylabel() == "rounds to gap <= 0.0001"
    (drawn,) = [line for line in ax.lines if line.get_label() == "Scaffold"]
    assert drawn.get_xydata().tolist() == [[0.03, reached[1]]]
    above = [line for line in ax.lines if line.get_clip_on() is False]
    missed = [line.get_xdata()[0] for line in above if line.get_marker() == "|"]
    assert sorted(missed) == [0.001, 0.001, 0.03]
    rings = [line.get_xdata()[0] for line in above if line.get_marker() == "o"]
    assert rings == [found["FedAvg"].best["lr"]]
    assert "target not reached by the last round" in ax.get_legend_handles_labels()[1]

    (ax,) = Tunings({"FedAvg": found["FedAvg"]}, [0]).figure().axes
    assert ax.get_ylabel() == "gap at the end"
    assert "target not reached by the last round" not in ax.get_legend_handles_labels()[1]


def test_the_picture_is_of_means_over_seeds():
    method = [{"name": "FedAvg", "lr": [0.02, 0.2]}]
    noisy = {"name": "quadratic", "clients": 6, "dim": 4, "noise": 2.0}
    wanted = spec(method=method, problem=noisy, tune={"extend": False, "seed": [1, 2, 3]})
    found = tune_spec(wanted)
    (ax,) = found.figure().axes
    (drawn,) = [line for line in ax.lines if line.get_label() == "FedAvg"]
    one = found["FedAvg"]
    heights = dict(drawn.get_xydata().tolist())
    assert heights[one.best["lr"]] == one.result.value > min(run.value for run in one.runs)
