"""Lines carry a running digest: what is not as it was written is found, said and put right."""

import hashlib
import json
import time

import pytest
from tests.records.older import unseal

import undrift as ud
from undrift.cli import main
from undrift.records.folder import ENDED, BadFolder, Folder, Outcome
from undrift.records.seals import after, beginning, check, seal, sealed
from undrift.spec.reader import parse

SPEC = """\
name = "mine"
rounds = 2
[problem]
name = "quadratic"
[[method]]
name = "FedAvg"
lr = 0.1
"""
ABOUT = {"spec": parse(SPEC).identity, "data": "d"}
TEXTS = [json.dumps({"a": k}).encode() for k in range(6)]
FIRST = beginning("run", "file")


def row(round, seed=0, label="FedAvg"):
    return {
        "label": label, "method": "FedAvg", "seed": seed, "round": round, "vectors": 2 * round,
        "gradients": round, "gap": 0.5**round, "seconds": 0.25,
    }  # fmt: skip


@pytest.fixture
def folder(tmp_path):
    """A run of two seeds, of which one has ended."""
    folder = Folder(tmp_path / "mine")
    folder.start(parse(SPEC), ABOUT, [])
    for k in range(4):
        folder.append(row(k))
    folder.ended(Outcome("FedAvg", "FedAvg", 0, "done", {"lr": 0.1}))
    for k in range(3):
        folder.append(row(k, seed=1))
    folder.close()
    return folder


def lines(folder, name="metrics.jsonl"):
    return folder.file(name).read_text().splitlines(keepends=True)


def put(folder, new, name="metrics.jsonl"):
    folder.file(name).write_text("".join(new))


def older(folder):
    """As an earlier version left it: lines without seals, outcomes with proofs."""
    for name in ("metrics.jsonl", ENDED):
        entries = [json.loads(line) for line in lines(folder, name)]
        for entry in entries:
            del entry["seal"]
        put(folder, [json.dumps(entry) + "\n" for entry in entries], name)
    folder.write("environment.json", json.dumps(ABOUT))


def test_a_seal_is_a_digest_of_the_run_the_file_and_all_lines_so_far():
    running = hashlib.sha256(b"file run").hexdigest()[:16]
    content, last = seal(TEXTS, FIRST)
    for text, line in zip(TEXTS, content.splitlines(), strict=True):
        running = hashlib.sha256(running.encode() + text).hexdigest()[:16]
        assert json.loads(line) == {**json.loads(text), "seal": running}
    assert last == running
    found = check(content, FIRST, every=True)
    assert (found.texts, found.sound, found.broken, found.last) == (TEXTS, 6, None, last)


def test_lines_without_seals_are_covered_by_those_after_them():
    old = b"".join(text + b"\n" for text in TEXTS[:3])
    assert check(old, FIRST, every=False).broken is None
    assert check(old, FIRST, every=True).broken == 1
    new, _ = seal(TEXTS[3:], check(old, FIRST, every=False).last)
    assert check(old + new, FIRST, every=False)[:3] == (TEXTS, 6, None)
    changed = check(old.replace(b"1", b"7") + new, FIRST, every=False)
    assert (changed.sound, changed.broken) == (0, 4)
    late = check(old + new + TEXTS[0] + b"\n", FIRST, every=False)
    assert (late.sound, late.broken) == (6, 7)


def test_no_changed_bit_is_missed():
    content, _ = seal(TEXTS[:3], FIRST)
    whole = check(content, FIRST, every=True)
    for at in range(len(content) - 1):
        for bit in range(8):
            damaged = bytearray(content)
            damaged[at] ^= 1 << bit
            assert check(bytes(damaged), FIRST, every=True).broken is not None, (at, bit)
    assert check(content[:-1], FIRST, every=True).texts == whole.texts[:-1]  # cut short
    for other in (beginning("another", "file"), beginning("run", "another")):
        assert check(content, other, every=True).broken == 1


def test_reading_names_file_and_line_and_what_is_sound(folder):
    good = lines(folder)
    for new, line in (
        ([*good[:2], good[2].replace("0.25", "0.26"), *good[3:]], 3),
        (good[:4] + good[5:], 5),
        (good[:1] + good[2:3] + good[1:2] + good[3:], 2),
        ([*good[:5], good[0], *good[5:]], 6),
    ):
        put(folder, new)
        for read in (folder.rows, folder.record, lambda: ud.load(folder.path)):
            with pytest.raises(BadFolder) as caught:
                read()
            assert f"metrics.jsonl:{line}: " in str(caught.value)
            assert "undrift resume" in str(caught.value)
    put(folder, good[:6])  # lost, and nothing tells
    assert len(folder.record()[0]) == 6
    put(folder, good[:3])
    with pytest.raises(BadFolder, match=r"outcomes.jsonl: how FedAvg, seed 0 ended"):
        folder.record()


def test_a_finished_run_proves_all_its_rows_and_outcomes(folder):
    ends = [Outcome("FedAvg", "FedAvg", seed, "done", {"lr": 0.1}) for seed in (0, 1)]
    folder.resume()
    folder.finish(ends)
    rows, outcomes, *_ = folder.record()
    assert outcomes == ends and len(rows) == 7
    good, summary = lines(folder), json.loads(folder.file("summary.json").read_text())
    for new in ([], good[:-1], good[1:]):
        put(folder, new)
        with pytest.raises(BadFolder, match="--overwrite"):
            folder.record()
    put(folder, good)
    for new in (summary[:1], summary[::-1], [summary[0] | {"status": "diverged"}, summary[1]]):
        put(folder, json.dumps(new), "summary.json")
        with pytest.raises(BadFolder, match="--overwrite"):
            folder.record()
    put(folder, json.dumps(summary), "summary.json")
    assert folder.record()[:2] == (rows, outcomes)
    unseal(folder.path)
    assert folder.record()[:2] == (rows, outcomes)


def test_mending_keeps_what_is_before_the_damage_or_proven(folder):
    good = lines(folder)
    put(folder, [*good[:4], good[4].replace("0.25", "0.26"), *good[5:]])
    (said,) = folder.resume()
    assert "metrics.jsonl:5: " in said
    assert folder.rows() == [row(k) for k in range(4)] and len(folder.outcomes()) == 1
    folder.append(row(0, seed=1))
    folder.close()
    folder = Folder(folder.path)
    put(folder, ["garbage\n", *lines(folder)])  # the rows that an outcome proves are all kept
    assert any("metrics.jsonl:1: " in said for said in folder.resume())
    assert folder.rows() == [row(k) for k in range(4)] and len(folder.outcomes()) == 1


def test_rows_of_what_has_ended_survive_a_kill_while_others_are_dropped(folder, monkeypatch):
    def killed(*args):
        raise KeyboardInterrupt

    folder.resume()
    before = folder.file("metrics.jsonl").read_bytes()
    with monkeypatch.context() as patch:
        patch.setattr("pathlib.Path.replace", killed)
        with pytest.raises(KeyboardInterrupt):
            folder.keep("FedAvg", 1, last=0)
    assert folder.file("metrics.jsonl").read_bytes() == before
    folder.keep("FedAvg", 1, last=0)
    folder.append(row(1, seed=1))
    assert [(r["seed"], r["round"]) for r in folder.record()[0]] == [
        *((0, k) for k in range(4)), (1, 0), (1, 1),
    ]  # fmt: skip


def test_an_older_folder_is_read_and_continued(folder):
    older(folder)
    rows, outcomes, *_ = folder.record()
    assert len(rows) == 7 and len(outcomes) == 1
    assert folder.resume() == []
    folder.append(row(3, seed=1))
    folder.ended(Outcome("FedAvg", "FedAvg", 1, "done", {"lr": 0.1}))
    folder.close()
    assert ["seal" in json.loads(line) for line in lines(folder)] == [False] * 7 + [True]
    assert ["seal" in json.loads(line) for line in lines(folder, ENDED)] == [False, True]
    assert Folder(folder.path).resume() == [] and len(folder.record()[0]) == 8
    put(folder, [lines(folder)[0].replace("0.25", "0.26"), *lines(folder)[1:]])
    with pytest.raises(BadFolder, match=r"metrics.jsonl:8: .*no line before it is known"):
        folder.rows()


def test_the_commands_refuse_and_resume_puts_right(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("undrift.cli.run.draw", lambda *about: None)
    (tmp_path / "spec.toml").write_text(SPEC)
    assert main(["run", "spec.toml"]) == 0
    folder = Folder(tmp_path / "runs/mine")
    put(folder, lines(folder)[1:])
    for words in (
        ["report", "mine"],
        ["compare", "mine"],
        ["resume", "mine"],
        ["run", "spec.toml"],
    ):
        capsys.readouterr()
        with pytest.raises(SystemExit) as end:
            main(words)
        err = capsys.readouterr().err
        assert end.value.code == 2 and "metrics.jsonl:1: " in err and "--overwrite" in err, words
    assert main(["run", "spec.toml", "--overwrite"]) == 0


def test_a_seal_costs_microseconds():
    text = json.dumps(row(3) | {f"column {k}": k / 7 for k in range(12)}).encode()
    times = []
    for _ in range(20):
        began = time.perf_counter()
        for _ in range(100):
            sealed(text, after(FIRST, text))
        times.append((time.perf_counter() - began) / 100)
    assert min(times) < 2e-5
