"""What is said of a method that diverged: the likely cause, and numbers that work."""

import dataclasses
import math

import pytest
import torch
from torch import nn

import undrift as ud
from undrift.core.stopping import Alarm, Goal
from undrift.engines.checkpoint import Shelf
from undrift.methods import registry
from undrift.problems import regression
from undrift.problems.named import made
from undrift.records.folder import Folder
from undrift.runs import advice
from undrift.runs.prepare import Setup, resolved
from undrift.runs.trial import RunPlace, Trial

PROBLEMS = {
    "quadratic": ({}, 5.0),
    "least-squares": ({}, 5.0),
    "logistic": ({}, 1000.0),
    "softmax-synthetic": ({"clients": 8, "features": 10, "classes": 5}, 1e5),
    "images": ({"data": "digits", "model": "mlp", "hidden": 8, "train": 200, "clients": 4}, 1e4),
}
BUILT = {name: made(name, **given).build() for name, (given, _) in PROBLEMS.items()}
QUADRATIC = BUILT["quadratic"]
SLOWLY = ud.FedAvg(lr=2.02 / QUADRATIC.constants.L_mean)
"""Diverges after some hundred rounds of one step."""


def task(method, problem=QUADRATIC, rounds=50, **setting):
    return resolved("mine", method, problem, Setup(steps=5, **setting), rounds, every=1)


def test_the_loss_falls_with_what_theory_suggests():
    bad = ud.FedAvg(lr=5.0)
    outcome = Trial(task(bad), 0, 0).run().outcome
    assert outcome.status == "diverged"
    suggested = advice.prescribed(task(bad))
    tamed = dataclasses.replace(bad, **suggested)
    again = ud.run(tamed, QUADRATIC, rounds=20, steps=5)
    assert again.status == "done" and again.history["loss"][-1] < again.history["loss"][0]
    for field, value in suggested.items():
        assert f"{field} = {value:g}" in outcome.note


def test_without_a_theory_a_smaller_step_is_advised():
    outcome = Trial(task(ud.FedAvgM(lr=5.0, beta=0.9)), 0, 0).run().outcome
    assert "try a smaller lr" in outcome.note


@pytest.mark.parametrize("name", ["softmax-synthetic", "logistic"])
def test_the_deltas_are_found_only_for_rules_that_need_them(name, monkeypatch):
    given, step = PROBLEMS[name]
    problem, asked = made(name, **given).build(), []

    def dissimilarity(*_):
        asked.append(1)
        return 2.0, 3.0

    monkeypatch.setattr(regression, "dissimilarity", dissimilarity)
    outcome = Trial(task(ud.Scaffold(lr=step), problem), 0, 0).run().outcome
    assert outcome.status == "diverged" and not asked
    assert resolved("mine", ud.DANE(lam="theory"), problem, Setup(), 1, 1).method.lam == 2.0
    assert asked and problem.constants.L == problem.cheap_constants.L == BUILT[name].constants.L


def test_theory_is_preferred():
    given = task(ud.FedRed(eta=0.2, lam=0.02, p=0.2))
    theory = task(ud.FedRed(eta="theory", lam="theory", p=0.2)).method
    found = advice.prescribed(given)
    assert found.keys() == {"eta", "lam"}
    for field, value in found.items():
        assert value == pytest.approx(getattr(theory, field), rel=0.01)


def test_theory_is_not_named_where_it_prescribes_nothing():
    method = ud.FedAvg(lr=100.0)
    assert advice.prescribed(task(method)).keys() == {"lr"}
    net = nn.Sequential(nn.Linear(2, 1))
    data = torch.ones(4, 2), torch.ones(4, 1)
    network = ud.Neural(net, data, [range(2), range(2, 4)], loss=nn.functional.mse_loss)
    assert advice.prescribed(task(method, network)) is None
    adamw = ud.Training(optimiser=ud.AdamW())
    assert advice.prescribed(task(method, training=adamw)) is None


def test_a_loss_that_begins_infinite_is_not_blamed_on_the_step():
    data = torch.ones(4, 2), torch.full((4, 1), 1e25)
    net = nn.Sequential(nn.Linear(2, 1))
    problem = ud.Neural(net, data, [range(2), range(2, 4)], loss=nn.functional.mse_loss)
    run = ud.run(ud.FedAvg(lr=0.05), problem, rounds=2)
    assert run.status == "diverged" and run.note.endswith(advice.TOO_LARGE)


def test_what_is_wrong_only_where_it_is_captured_is_not_blamed_on_the_step(monkeypatch):
    class Captured(type(QUADRATIC)):
        def at(self, members=None):
            oracle = super().at(members)
            oracle.grad = lambda y, *batch: y * math.nan
            return oracle

        def plain(self):
            return QUADRATIC

    broken = made("quadratic").build()
    broken.__class__ = Captured
    outcome = Trial(task(ud.FedAvg(lr=0.01), broken), 0, 0).run().outcome
    assert outcome.status == "diverged"
    assert advice.NOT_ITS_OWN in outcome.note
    monkeypatch.setattr(Captured, "plain", lambda self: broken)
    assert (
        advice.NOT_ITS_OWN not in Trial(task(ud.FedAvg(lr=0.01), broken), 0, 0).run().outcome.note
    )


def test_theory_is_not_repeated_to_who_used_it():
    assert advice.prescribed(task(ud.FedAvg(lr="theory"))) is None
    assert advice.prescribed(task(ud.FedAvg(lr=1e-9))) is None
    assert advice.prescribed(task(ud.FedAvgM(lr=5.0, beta=0.9))) is None


def test_the_last_sound_model_is_kept(tmp_path):
    def saved():
        folder = tmp_path / "run"
        return ud.run({"a": SLOWLY}, QUADRATIC, rounds=2000, every=2000, save=folder)["a", 0]

    run = saved()
    (outcome,) = Folder(tmp_path / "run").outcomes()
    kept = ud.load(tmp_path / "run").models["a", 0]["last"]["x"]
    assert outcome.status == run.status == "diverged" and torch.equal(run.x, kept)
    assert torch.equal(saved().x, kept)
    alarm = Alarm.first(QUADRATIC.metrics(QUADRATIC.start()))
    assert not alarm.look(QUADRATIC.metrics(kept), None)
    assert alarm.look(QUADRATIC.metrics(run.engine.x), None)


def test_a_resumed_run_knows_its_last_sound_model(tmp_path):
    shelf, folder = Shelf(tmp_path, "mine", "mine"), Folder(tmp_path)

    def trial(place=None):
        return Trial(resolved("mine", SLOWLY, QUADRATIC, Setup(), 10_000, 10_000), 0, 0, place)

    whole = trial()
    assert whole.train() == "diverged" and 11 < whole.sound.round < whole.engine.round

    class After:
        """Stops before a round at which nobody looks."""

        asked = property(lambda self: first.engine.round >= 11)

    first = trial(RunPlace(folder, shelf))
    assert first.train(stop=After()) == "stopped" and first.sound.round < first.engine.round
    folder.mend()
    second = trial(RunPlace(folder, shelf))
    assert second.sound.round == first.sound.round
    assert torch.equal(second.sound.x, first.sound.x)
    assert second.train() == "diverged" and torch.equal(second.sound.x, whole.sound.x)


@pytest.mark.parametrize("name", registry)
def test_every_method_says_what_tames_it(name):
    fields = {field.name for field in dataclasses.fields(registry[name])}
    cls = registry[name]
    assert fields & {*cls.step_sizes, *cls.proximal_weights}
    assert set(cls.proximal_weights) <= fields


def test_a_run_that_ends_above_its_start_says_so():
    """A step too large for the data, with which a logistic loss stays finite."""
    given = {"l2": 0.02, "rounds": 30, "steps": 10}
    run = ud.run(ud.FedAvg(lr=40.0), "logistic-heart", **given)
    assert run.status == "done" and run.history["loss"][-1] > run.history["loss"][0]
    assert run.note == "ended with a larger loss than it began with: try a smaller lr"
    assert run.note in repr(run)
    assert ud.run(ud.FedAvg(lr=0.2), "logistic-heart", **given).note == ""


def test_a_network_that_has_learnt_nothing_says_so():
    """Its loss on test samples is above the first one, and its accuracy is still that of chance."""
    net = {"data": "digits", "model": "mlp", "clients": 10, "hidden": 32}
    small, large, largest = (
        ud.run(ud.FedAvg(lr=lr), "images", **net, rounds=10, steps=10, every=10)
        for lr in (0.3, 4.0, 20.0)
    )
    assert small.note == "" and small.history["accuracy"][-1] > 0.8
    assert largest.history["accuracy"][-1] > largest.history["accuracy"][0]
    for run in (large, largest):
        assert run.status == "done" and run.history["accuracy"][-1] < 0.13
        assert run.note == "ended with a larger loss than it began with: try a smaller lr"


def test_what_a_run_is_judged_by_tells_whether_it_has_learnt():
    """With weights for a rare class accuracy falls, and what is wanted rises."""
    draw = torch.Generator().manual_seed(0)
    x, noise = torch.randn(800, 20, generator=draw), torch.randn(800, generator=draw)
    y = (x[:, 0] + x[:, 1] + noise > 2.2).long()
    weights = torch.tensor([0.2, 1.8])

    def loss(outputs, targets):
        each = torch.nn.functional.cross_entropy(outputs, targets, reduction="none")
        return (each * weights[targets]).mean()

    torch.manual_seed(0)
    net = torch.nn.Sequential(torch.nn.Linear(20, 64), torch.nn.ReLU(), torch.nn.Linear(64, 2))
    with torch.no_grad():
        net[2].bias.copy_(torch.tensor([0.5, -0.5]))
    about = {"loss": loss, "metrics": ["accuracy", "auc"], "test": 0.5}
    problem = ud.Neural(net, (x, y), ud.data.iid(800, clients=2), **about)
    given = {"rounds": 150, "steps": 20}
    run = ud.run(ud.FedAvg(lr=0.3), problem, callbacks=[ud.Goal(metric="auc")], **given)
    for name, better in (("auc", True), ("accuracy", False), ("loss", True)):
        first, last = run.history[name][[0, -1]]
        assert (last > first) == better, (name, first, last)
    assert run.note == "" and "larger loss" in ud.run(ud.FedAvg(lr=0.3), problem, **given).note


def test_a_network_that_overfits_is_not_told_to_step_less():
    """Its loss on others' samples grows, however small its steps are."""
    draw = torch.Generator().manual_seed(0)
    x, noise = torch.randn(400, 20, generator=draw), torch.randn(400, generator=draw)
    y = (x[:, 0] + x[:, 1] + noise > 0).long()
    torch.manual_seed(0)
    net = torch.nn.Sequential(torch.nn.Linear(20, 64), torch.nn.ReLU(), torch.nn.Linear(64, 2))
    problem = ud.Neural(net, (x, y), ud.data.iid(400, clients=2), test=0.5)
    run = ud.run(ud.FedAvg(lr=0.2), problem, rounds=100, steps=20)
    (first, last), loss = run.history["accuracy"][[0, -1]], run.history["loss"]
    assert last > first + 0.1 and loss[-1] > loss[0] and run.note == ""


def test_tables_have_what_is_to_be_said_of_a_run():
    """In Python as on the command line, below the table."""
    given = {"l2": 0.02, "rounds": 30, "steps": 10}
    runs = ud.run([ud.FedAvg(lr=40.0), ud.FedRecu(lr=0.2)], "logistic-heart", **given)
    assert "FedAvg ended with a larger loss than it began with" in runs.table().replace("\n", " ")
    assert "FedAvg ended with a larger loss" in runs.html("Runs")
    assert "FedRecu ended" not in repr(runs)


def test_a_network_with_less_accuracy_than_before_training_says_so():
    """Also where its loss is smaller than it was."""
    draw = torch.Generator().manual_seed(0)
    x, y = torch.randn(400, 20, generator=draw), torch.arange(400) % 4
    net = torch.nn.Linear(20, 4)
    with torch.no_grad():  # it is sure of what is most frequent among the test samples
        net.weight.zero_()
        net.bias.copy_(torch.tensor([0.0, 0.0, 2.0, 2.01]))
    test = torch.where(torch.arange(400) % 5 < 2, 3, torch.arange(400) % 3)
    problem = ud.Neural(net, (x, y), ud.data.iid(400, clients=2), test=(x, test))
    run = ud.run(ud.FedAvg(lr=0.3), problem, rounds=5, steps=20)
    assert run.history["loss"][-1] < run.history["loss"][0]
    assert run.note == "ended with less accuracy than it began with: try a smaller lr"


@pytest.mark.parametrize(
    ("before", "now", "learnt", "fell"),
    [
        (0.25, 0.5, True, False),
        (0.25, 0.26, False, False),
        (0.25, 0.1, False, True),
        (-100.0, -90.0, True, False),
        (-100.0, -130.0, False, True),
        (0.5, float("nan"), True, False),
        (None, None, True, False),
    ],
)
def test_what_has_been_learnt(before, now, learnt, fell):
    """Also of a metric of one's own that is negative, or unknown."""
    row, later = ({"loss": 1.0} | ({} if v is None else {"won": v}) for v in (before, now))
    alarm = Alarm.first(row, Goal(metric="won", mode="max"))
    alarm.look(later, 0.1)
    assert (alarm.learnt, alarm.fell) == (learnt, fell)
