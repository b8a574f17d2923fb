"""What stands in the file of a report."""

import base64
import hashlib
import json
import re
from html.parser import HTMLParser

import pytest
from tests.report.recorded import HOSTILE, record, rename, share

from undrift.cli import main
from undrift.report import html


class Reader(HTMLParser):
    """Every tag with its attributes, and the content of scripts."""

    def __init__(self, text: str):
        super().__init__()
        self.tags: list[tuple[str, dict]] = []
        self.scripts: list[str] = []
        self.inside = False
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        if tag == "script":
            self.scripts.append("")
            self.inside = True

    def handle_endtag(self, tag):
        self.inside = False

    def handle_data(self, data):
        if self.inside:
            self.scripts[-1] += data


def report(*paths, words=()):
    assert main(["report", *map(str, paths), *words]) == 0
    return (paths[0] / "report.html").read_text()


@pytest.fixture
def folder(tmp_path):
    return record(tmp_path / "known")


def data(text):
    return json.loads(Reader(text).scripts[0])


def test_it_asks_nothing_of_a_network(folder):
    share(folder)
    read = Reader(report(folder.path))
    assert {tag for tag, _ in read.tags} >= {"style", "script", "table", "caption", "details"}
    for tag, attributes in read.tags:
        for name in ("src", "href", "srcset", "action", "poster", "background"):
            value = attributes.get(name, "#")
            assert value.startswith(("data:", "#")), (tag, name, value[:80])
    style = re.search(r"<style>(.*?)</style>", report(folder.path), re.DOTALL)[1]
    assert "url(" not in style and "@import" not in style


def test_only_its_own_scripts_may_run(folder):
    read = Reader(report(folder.path))
    policy = next(
        a["content"] for _, a in read.tags if a.get("http-equiv") == "Content-Security-Policy"
    )
    assert policy.startswith("default-src 'none'; ") and "unsafe-eval" not in policy
    allowed = re.search(r"script-src ([^;]*);", policy)[1].split()
    scripts = [
        base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
        for script in read.scripts[1:]
    ]
    assert allowed == [f"'sha256-{digest}'" for digest in scripts] and len(scripts) == 2


def test_names_are_text(tmp_path):
    folder = record(tmp_path / "known")
    rename(folder)
    text = report(folder.path)
    tags = [tag for tag, _ in Reader(text).tags]
    plain = record(tmp_path / "plain")
    plain = [tag for tag, _ in Reader(report(plain.path)).tags]
    assert tags == plain
    assert "{{ 7 * 7 }}" in text
    assert [one["label"] for one in data(text)["series"]] == [*HOSTILE]


def test_what_else_is_written_on_disk_is_text_too(folder):
    bad = "<script>hacked()</script>"
    folder.file("environment.json").write_text(json.dumps({"note": bad, "python": bad, bad: bad}))
    folder.file("spec.toml").write_text(f"# {bad}\n" + folder.file("spec.toml").read_text())
    folder.file("partition.json").write_text(
        json.dumps({"classes": [bad, "b"], "counts": [[1, 2]]})
    )
    assert len(Reader(report(folder.path)).scripts) == 3


def test_the_charts_have_every_row_of_every_seed(folder):
    found = data(report(folder.path))
    assert list(found["x"]) == ["round", "vectors", "bytes", "gradients", "seconds"]
    assert list(found["y"]) == ["gap", "accuracy", "loss", "drift"]
    assert (found["judge"], found["target"], found["smooth"], found["stride"]) == (
        "gap",
        1.5e-5,
        1,  # of eleven rows
        1,
    )
    fedavg, scaffold = found["series"]
    assert (fedavg["biased"], scaffold["biased"]) == (True, False)
    assert scaffold["seeds"]["1"]["bytes"] == [400 * k for k in range(7)]
    assert scaffold["seeds"]["1"]["gap"] == [float(f"{2 * 0.1**k:.6g}") for k in range(7)]
    assert found["y"]["accuracy"]["title"] == "training accuracy, %" and found["y"]["gap"]["log"]


def test_more_rows_than_a_screen_has_points_are_thinned(folder, monkeypatch):
    monkeypatch.setattr(html, "POINTS", 4)
    text = report(folder.path)
    found = data(text)
    assert found["stride"] == 3 and found["series"][0]["seeds"]["0"]["round"] == [0, 3, 6, 9, 10]
    assert "one row in 3" in text


def test_of_many_clients_some_are_shown(folder):
    counts = share(folder, clients=250)
    text = report(folder.path)
    (found,) = data(text)["maps"]
    assert found["clients"] == list(range(0, 250, 3)) and found["counts"] == [
        counts[k] for k in range(0, 250, 3)
    ]
    assert "shown: 84 clients, one in 3" in text and "250 clients, 2 classes" in text


def test_values_that_are_missing(tmp_path):
    """Rows of a problem without drift, bytes or seconds."""
    text = report(record(tmp_path / "bare", drift=None, bytes_up=None, seconds=None).path)
    assert list(data(text)["x"]) == ["round", "vectors", "gradients"]
    text = report(record(tmp_path / "judged", gap=None).path)
    assert data(text)["judge"] == "accuracy"
    text = report(record(tmp_path / "training", gap=None, train_loss=1.0, train_accuracy=0.5).path)
    titles = {name: column["title"] for name, column in data(text)["y"].items()}
    assert (
        titles["train_loss"] == "training loss"
        and titles["train_accuracy"] == "training accuracy, %"
    )
    assert data(text)["y"]["train_accuracy"]["share"]
    text = report(record(tmp_path / "neither", gap=None, accuracy=None).path)
    assert data(text)["judge"] == "loss" and "final loss" in text


@pytest.mark.parametrize(
    ("samples", "accuracy", "loss", "said"),
    [
        ("test", "test accuracy, %", "test loss", "on the test samples"),
        ("train", "training accuracy, %", "loss, f(x)", "on the clients&#39; training samples"),
        (None, "accuracy, %", "loss, f(x)", ""),
    ],
)
def test_the_folder_says_which_samples_were_measured_on(tmp_path, samples, accuracy, loss, said):
    folder = record(tmp_path / "judged", gap=None)
    folder.file("environment.json").write_text(json.dumps({"metric_samples": samples}))
    text = report(folder.path)
    assert data(text)["y"]["accuracy"]["title"] == accuracy
    assert data(text)["y"]["loss"]["title"] == loss
    assert ("at the end, on" in text) == bool(said) and said in text
    assert ("Best final training accuracy" in text) == (samples == "train")


def test_runs_on_different_samples_are_remarked(tmp_path):
    folders = [record(tmp_path / of, gap=None) for of in ("test", "train")]
    for folder in folders:
        folder.file("environment.json").write_text(json.dumps({"metric_samples": folder.path.name}))
    said = "test, on the test samples; train, on the clients&#39; training samples"
    out = folders[0].path / "report.html"
    assert said in report(*(folder.path for folder in folders), words=["-o", str(out)])
    assert said not in report(folders[0].path)


def test_cards_name_nobody_while_a_method_is_unfinished_nor_across_problems(tmp_path, capsys):
    half = record(tmp_path / "half", ended=False).path
    text = report(half)
    assert "Unfinished" in text and "unfinished: 5 to 6 of 10 rounds" in text
    one, other = record(tmp_path / "one").path, record(tmp_path / "two").path
    words = ["-o", str(one / "report.html")]
    for mixed in (text, report(one, half, words=words)):
        assert not any(card in mixed for card in ("Fewest rounds", "Missed the target"))
    assert main(["compare", str(half)]) == 0
    assert "unfinished: 5 to 6 of 10 rounds" in " ".join(capsys.readouterr().out.split())
    assert "Fewest rounds" in report(one, other, words=words)
    spec = other / "spec.toml"
    spec.write_text(spec.read_text().replace("clients = 4", "clients = 5"))
    assert "Fewest rounds" not in report(one, other, words=words)


def test_the_note_stands_beside_every_accuracy(tmp_path):
    folder = record(tmp_path / "judged", gap=None)
    about = {"note": "JPEG q80", "metric_samples": "test"}
    folder.file("environment.json").write_text(json.dumps(about))
    text = report(folder.path)
    assert data(text)["y"]["accuracy"]["title"] == "test accuracy, % (JPEG q80)"
    assert "final accuracy (JPEG q80)" in text and "Data: JPEG q80" in text


def test_unknown_numbers_have_no_place_in_a_chart(tmp_path, capsys):
    folder = record(tmp_path / "known")
    file = folder.path / "metrics.jsonl"
    lines = file.read_text(encoding="utf-8").splitlines()
    row = json.loads(lines[-1])
    lines[-1] = json.dumps(row | dict.fromkeys(("gap", "loss", "drift")))
    file.write_text("\n".join(lines) + "\n", encoding="utf-8")
    script = Reader(report(folder.path)).scripts[0]
    found = json.loads(script, parse_constant=pytest.fail)
    assert found["series"][-1]["seeds"][str(row["seed"])]["gap"][-1] is None
    capsys.readouterr()
    assert main(["compare", str(folder.path), "--json"]) == 0
    json.loads(capsys.readouterr().out, parse_constant=pytest.fail)
