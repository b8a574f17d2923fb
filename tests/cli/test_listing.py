"""``list`` and ``show`` tell what the methods declare."""

import dataclasses
import inspect
import json
import os
import subprocess
import sys

import pytest
from tests.cli import conftest

from undrift.cli import VERBS, added, main
from undrift.core.aggregation import registry as reductions
from undrift.core.cohort import Sampling
from undrift.core.faults import Fault, Judging
from undrift.core.method import registry
from undrift.core.optimisers import registry as optimisers
from undrift.core.options import Training
from undrift.core.params import hints
from undrift.core.schedules import registry as schedules
from undrift.core.stopping import EarlyStopping, Goal
from undrift.data.natural import cards
from undrift.engines.options import registry as engines
from undrift.methods import FedCET, FedTrack, Scaffold
from undrift.objectives.base import registry as objectives
from undrift.problems.named import registry as problems
from undrift.spec.schema import Settings
from undrift.spec.space import Several, Tuning


def told(capsys, *words):
    code, out, err = conftest.told(capsys, *words)
    assert (code, err) == (0, "")
    return out


def refused(capsys, *words):
    code, out, err = conftest.told(capsys, *words)
    assert (code, out) == (2, "")
    return err


def test_methods_as_json_carry_every_declaration(capsys):
    rows = {row["name"]: row for row in json.loads(told(capsys, "list", "methods", "--json"))}
    assert set(rows) == set(registry)
    assert all(row["title"] and row["paper"] for row in rows.values())
    scaffold = rows["Scaffold"]
    assert (scaffold["vectors_up"], scaffold["vectors_down"], scaffold["syncs"]) == (2, 2, 1)
    assert (scaffold["stored_server"], scaffold["stored_client"]) == (2, 1)
    assert scaffold["exact"] and scaffold["participation"] == "partial"
    fedcet = rows["FedCET"]
    assert (fedcet["vectors_up"], fedcet["vectors_down"], fedcet["stored_client"]) == (1, 1, 2)
    assert len(fedcet["assumptions"]) == 2
    assert not rows["FedAvg"]["exact"]
    assert rows["FedTrack"]["provisional"] == FedTrack.provisional != ""
    assert any("exactly" in text for text in rows["DANE"]["assumptions"])


def test_the_tables_name_everything_and_fit(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "100")
    for kind, known in (("methods", registry), ("problems", problems), ("objectives", objectives)):
        text = told(capsys, "list", kind)
        assert all(any(line.startswith(name) for line in text.splitlines()) for name in known)
        assert max(map(len, text.splitlines())) <= 100
    text = told(capsys, "list", "methods")
    assert "FedTrack *" in text and "if all: in runs of which no client misses a round" in text
    exact = {
        line.split()[0]: line.split(None, 6) for line in text.replace(" *", "").splitlines() if line
    }
    for name, when in (
        ("Mime", "if all"),
        ("Scaffold", "yes"),
        ("FedLin", "yes"),
        ("FedAvg", "no"),
    ):
        assert exact[name][6].startswith(f"{when} ")
    assert exact["FedADMM"][6].startswith("if all ")  # unless its rule is another than the default


def test_what_is_no_method_is_told_where_it_is(capsys):
    found = refused(capsys, "show", "images")
    assert found.startswith("unknown method or data 'images'")
    assert "undrift compare RUN" in found and "undrift list problems" in found
    assert "did you mean heart?" in refused(capsys, "show", "hearts")


def test_every_setting_of_a_spec_is_explained(capsys):
    rows = json.loads(told(capsys, "list", "settings", "--json"))
    options = [*engines.values()]
    tables = (Settings, Training, Sampling, Fault, Judging, EarlyStopping, Goal, Tuning, Several)
    tables += (*reductions.values(), *options)
    tables += (*schedules.values(), *optimisers.values())
    listed = [f.name for cls in tables for f in dataclasses.fields(cls)]
    fields = set(listed)
    assert sorted(row["name"] for row in rows) == sorted(listed)
    assert all(row["meaning"] and row["takes"] for row in rows)
    assert {row["name"] for row in rows if row["required"]} == {
        "name", "rounds", "size", "share", "bad", "radius", "kind", "rate", "factors"
    }  # fmt: skip
    known = {row["name"]: row for row in rows if "tune" not in row["place"]}
    assert known["clip_scope"]["default"] == "task"
    assert known["seed"]["default"] == 0
    assert known["cohort"]["takes"] == "whole number >= 1 or table, or left out"
    assert "method" in known["schedule"]["place"] and "method" not in known["vary"]["place"]
    text = told(capsys, "list", "settings")
    assert all(f"\n  {name} " in text for name in fields)
    assert "whole number >= 1; required" in text and 'default "simulate"' in text


def test_problems_as_json_carry_their_parameters(capsys):
    rows = {row["name"]: row for row in json.loads(told(capsys, "list", "problems", "--json"))}
    beta = next(p for p in rows["logistic"]["parameters"] if p["name"] == "beta")
    assert (beta["takes"], beta["default"], beta["required"]) == ("number > 0", 1.0, False)
    for name, row in rows.items():
        assert {p["name"] for p in row["parameters"]} == set(hints(problems[name]))
        assert all(p["meaning"] for p in row["parameters"]), name
    text = " ".join(told(capsys, "list", "problems").split())
    assert rows["images"]["parameters"][-1]["meaning"] in text


def test_the_page_of_a_method(capsys):
    page = told(capsys, "show", "fed-cet")
    assert FedCET.title in page and FedCET.paper in page
    assert inspect.getsource(FedCET) in page + "\n"
    assert r"\leftarrow d_i + c (z_i - z)" in page and "Reference    Liu and Wang" in page
    assert 'number > 0, or "theory"; required' in page
    assert "Provisional: " + FedTrack.provisional in told(capsys, "show", "FedTrack")
    assert all(name in told(capsys, "show", name) for name in registry)


def test_objectives_with_their_parameters(capsys):
    rows = {row["name"]: row for row in json.loads(told(capsys, "list", "objectives", "--json"))}
    assert set(rows) == set(objectives)
    assert all(row["title"] and row["paper"] for row in rows.values())
    assert rows["MOON"]["needs"] == ["features", "global", "previous"]
    fields = rows["FedNTD"]["parameters"]
    assert [field["name"] for field in fields] == ["beta", "tau", "form"]
    assert "number > 0; default 0.5" in told(capsys, "list", "objectives")


def test_data_with_how_their_clients_differ(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "100")
    rows = {row["name"]: row for row in json.loads(told(capsys, "list", "data", "--json"))}
    assert set(rows) == set(cards())
    for name, row in rows.items():
        assert row["shares"] == sorted(row["shares"]) and len(row["shares"]) == row["clients"], name
        assert 0 <= row["target_between"] < 1 and 0 < row["features_between"] < 1
    text = told(capsys, "list", "data")
    (heart,) = (line.split() for line in text.splitlines() if line.startswith("heart"))
    assert heart[1:] == ["logistic", "4", "920", "17", "17%", "13%", "CC", "BY", "4.0", "▄▄▆█"]
    (radon,) = (line.split() for line in text.splitlines() if line.startswith("radon"))
    assert len(radon[-1]) == 16 and (radon[-1][0], radon[-1][-1]) == ("▁", "▇")
    assert max(map(len, text.splitlines())) <= 100


def test_the_card_of_data(capsys):
    card = cards()["heart"]
    page = " ".join(told(capsys, "show", "heart").split())
    for text in (card.title, card.client, card.differ, card.target, card.licence, card.source):
        assert text in page
    assert card.citation in page and 'name = "logistic" and data = "heart"' in page
    assert json.loads(told(capsys, "show", "heart", "--json"))["clients"] == 4


def test_the_page_as_json(capsys):
    page = json.loads(told(capsys, "show", "Scaffold", "--json"))
    assert page["source"] == inspect.getsource(Scaffold)
    theory = {p["name"]: p["theory"] for p in page["parameters"]}
    assert theory == {"lr": True, "server_lr": False, "option": False}
    assert next(p for p in page["parameters"] if p["name"] == "option")["takes"] == "'I' or 'II'"


def test_what_does_not_exist_is_refused_with_the_nearest(capsys):
    assert "did you mean Scaffold?" in refused(capsys, "show", "Scafold")
    assert "did you mean list?" in refused(capsys, "lst")
    assert "methods" in refused(capsys, "list", "method")
    assert "\x1b" not in refused(capsys, "show", "\x1b[2Jx")
    assert "\x1b" not in refused(capsys, "\x1b[2Jx")
    assert "\x1b" not in refused(capsys, "show", "FedAvg", "--\x1b[2Jx")


def test_without_words_there_is_help(capsys):
    assert main([]) == 2
    text = capsys.readouterr().out
    assert all(verb in text for verb in (*VERBS, *added(), "Exit codes"))


def test_an_overview_counts_and_names_the_command_for_each(capsys):
    rows = json.loads(told(capsys, "list", "--json"))
    counts = {row["what"]: row["number"] for row in rows}
    assert counts["methods"] == len(registry) and counts["problems"] == len(problems)
    assert counts["objectives"] == len(objectives)
    for row in rows[:-1]:
        listed = json.loads(told(capsys, *row["command"].split()[1:], "--json"))
        assert len(listed) == row["number"]
    assert "undrift list methods" in told(capsys, "list")


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("line", "among", "never"),
    [
        ("undrift comp", {"compare"}, {"run"}),
        ("undrift reprod", {"reproduce"}, {"run"}),
        ("undrift list ", {"methods", "settings"}, {"run"}),
        ("undrift compare --p", {"--plot"}, {"--json"}),
        ("undrift nonsense --p", set(), {"--plot"}),
    ],
)
def test_a_shell_asks_for_the_next_word(line, among, never, tmp_path):
    pytest.importorskip("argcomplete")
    asked = {"COMP_LINE": line, "COMP_POINT": str(len(line)), "COMP_TYPE": "9"}
    asked |= {"_ARGCOMPLETE": "1", "_ARGCOMPLETE_IFS": " "}
    asked["_ARGCOMPLETE_STDOUT_FILENAME"] = str(tmp_path / "answer")
    (tmp_path / "answer").touch()
    command = [sys.executable, "-m", "undrift"]
    subprocess.run(command, env=os.environ | asked, capture_output=True, timeout=60, check=False)
    found = {*(tmp_path / "answer").read_text().split(" ")}
    assert among <= found and not never & found
