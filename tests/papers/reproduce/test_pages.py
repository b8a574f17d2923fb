"""From the command line to a page."""

import json

import pytest
from tests.papers.reproduce.conftest import SPEC

from undrift.cli import main
from undrift_papers.reproduce import items, perform
from undrift_papers.reproduce.cache import Cache
from undrift_papers.reproduce.page import claims, index
from undrift_papers.reproduce.verdict import LITTLE


def test_a_page(papers, tmp_path, capsys, seeded):
    out, pages = tmp_path / "out", tmp_path / "pages"
    assert main(["reproduce", "toy/figure-1", "--out", str(out), "--pages", str(pages)]) == 0
    said = capsys.readouterr()
    assert "1 item, 3 runs: 0 kept, 3 to do" in said.err and "toy/figure-1" in said.out
    page = (pages / "toy" / "figure-1.md").read_text()
    assert "undrift reproduce toy/figure-1\n" in page
    for words in (
        "SCAFFOLD is exact, FedAvg is not.",
        "The step is not given.",
        "Their code is longer.",
        "1 seed",
    ):
        assert words in page
    assert "Here rounds to gap 0.001 agrees within 7." in page
    numbers = json.loads((pages / "toy" / "figure-1.json").read_text())
    assert (
        numbers["verdict"] in page and numbers["coverage"] == [2, 2] and numbers["agree"] == [2, 2]
    )
    cells = {c["label"]: c for c in numbers["panels"][0]["columns"][1]["cells"]}
    assert cells["FedAvg"]["ours"] == cells["FedAvg"]["printed"] == "-"
    assert cells["SCAFFOLD"]["printed"] == 20
    assert all(
        (pages / "toy" / f"figure-1.{kind}").stat().st_size > 1000 for kind in ("png", "pdf")
    )
    listed = (pages / "README.md").read_text()
    assert "[toy/figure-1](toy/figure-1.md)" in listed and "(agreement.png)" in listed
    assert (
        "| 2 of 2 | 2 of 2 | 2 of 2 | 2 of 2 | 1 |" in listed and "1 item: 1 reproduced." in listed
    )
    assert (pages / "agreement.png").stat().st_size > 1000
    assert main(["reproduce", "toy", "--out", str(out), "--pages", str(pages), "--seeds", "2"]) == 0
    assert "3 kept, 3 to do" in capsys.readouterr().err
    page = (pages / "toy" / "figure-1.md").read_text()
    assert "--seeds 2" in page and "2 seeds" in page


def test_the_list_tells_what_was_run_and_whether_claims_hold():
    page = {
        "item": "toy/a",
        "title": "A toy",
        "verdict": LITTLE,
        "ran": "1 of 84 pairs run: agrees",
    }
    page |= {"claim": "A is first.", "answer": "no", "pairs": [1, 84], "coverage": [0, 0]}
    text = index([page | {"seeds": 1, "device": "cpu", "date": ""}], False)
    assert "1 item: 1 too little run to judge. Does what the papers claim hold? 1 no." in text
    assert "| 1 of 84 pairs run: agrees | A is first. | no |" in text


def test_a_claim_is_a_line_of_its_own(undrawn, tmp_path, capsys):
    file = undrawn / "toy" / "figure-1.toml"
    words = ["reproduce", "toy/figure-1", "--out", str(tmp_path)]
    place = tmp_path / "pages" / "toy" / "figure-1"
    claim = 'claim = "SCAFFOLD ends lower."\n'
    by_hand = 'answer = "no"\nbecause = "it is a toy"\n'
    for more, line in (
        ("", "(1 of 1 pairs hold)"),
        (by_hand, "no** (answered by hand: it is a toy)"),
        (by_hand + "# of other runs\n", "cannot be told** (not looked at by hand)"),
    ):
        told = SPEC.replace("[item]\n", f"[item]\n{claim}{more}")
        file.write_text(told if "other" in more else told.replace("agree = 1", "agree = 2"))
        for cached in (items.item, items._document, items._spec):
            cached.cache_clear()
        assert main(words) == 0
        page = place.with_suffix(".md").read_text()
        assert "**The paper's claim: SCAFFOLD ends lower. Holds: " in page and line in page
    assert "[How it is judged](../README.md#how-it-is-judged)" in page
    assert "standard error" not in page  # the rule is in one place
    assert "## How it is judged" in (tmp_path / "pages" / "README.md").read_text()


def test_a_quick_page_is_apart_and_not_judged(undrawn, tmp_path, capsys):
    assert main(["reproduce", "--quick", "all", "--out", str(tmp_path)]) == 0
    page = (tmp_path / "pages" / "quick" / "toy" / "figure-1.md").read_text()
    assert "A quick run" in page and "not judged (quick)" in page
    assert "Nothing was found" not in page and "It is a toy" not in page
    assert not (tmp_path / "pages" / "README.md").exists()
    assert "not judged" in (tmp_path / "pages" / "quick" / "README.md").read_text()


def test_a_part_of_an_item(undrawn, tmp_path, capsys):
    words = [
        "reproduce",
        "toy/figure-1/main",
        "--only",
        "SCAFFOLD",
        "--rounds",
        "10",
        "--out",
        str(tmp_path),
    ]
    assert main(words) == 0
    assert "1 run: 0 kept, 1 to do" in capsys.readouterr().err
    page = (tmp_path / "pages" / "toy" / "figure-1.md").read_text()
    assert "10 of 40" in page and "Not run." in page and "Not run: FedAvg." in page
    assert "nothing to judge yet" in page
    assert main([*words[:4], "--out", str(tmp_path)]) == 0
    page = (tmp_path / "pages" / "toy" / "figure-1.md").read_text()
    assert "**1 of 2 numbers and 0 of 2 pairs run: agrees.**" in page and "Verdict" not in page
    with pytest.raises(SystemExit) as ended:
        main([*words[:2], "--only", "FedProx", "--out", str(tmp_path)])
    assert ended.value.code == 2 and "FedProx" in capsys.readouterr().err


def test_reasons_are_told_of_the_runs_they_are_about(undrawn, tmp_path, capsys, seeded):
    file = undrawn / "toy" / "figure-1.toml"
    file.write_text(file.read_text().replace("SCAFFOLD = 20 }", "SCAFFOLD = 39 }"))
    words = ["reproduce", "toy", "--out", str(tmp_path), "--json"]
    for more, told in ((["--only", "SCAFFOLD"], False), ([], True), (["--seeds", "2"], False)):
        assert main([*words, *more]) == 0
        (numbers,) = json.loads(capsys.readouterr().out)
        assert (numbers["why"] == "It is a toy") is told, numbers["found"]
        page = (tmp_path / "pages" / "toy" / "figure-1.md").read_text()
        assert ("It is a toy" in page) is told and ("Nothing was found" in page) is told


def test_runs_shorter_than_the_papers_are_a_part(undrawn, tmp_path, capsys):
    """Even if they have every number that is judged."""
    file = undrawn / "toy" / "figure-1.toml"
    text = file.read_text().replace('read = "final"', 'read = "at"\nat = 20')
    file.write_text(text.replace('printed = { FedAvg = "-", SCAFFOLD = 20 }', ""))
    for more, verdict in ((["--rounds", "30"], "reproduced, in part"), ([], "reproduced")):
        assert main(["reproduce", "toy", "--out", str(tmp_path), "--json", *more]) == 0
        (numbers,) = json.loads(capsys.readouterr().out)
        assert numbers["ordered"] == [1, 1] and numbers["verdict"] == verdict


def test_a_page_tells_what_is_late_and_what_did_not_train(undrawn, tmp_path, capsys):
    file = undrawn / "toy" / "figure-1.toml"
    late = "printed = { FedAvg = 2, SCAFFOLD = 20 }"
    text = file.read_text().replace('printed = { FedAvg = "-", SCAFFOLD = 20 }', late)
    file.write_text(text + '\n[[item.panel.column]]\nread = "final"\nof = "gap"\nchance = 1e9\n')
    words = ["reproduce", "toy/figure-1", "--out", str(tmp_path)]
    assert main([*words, "--only", "FedAvg", "--rounds", "20"]) == 0
    page = (tmp_path / "pages" / "toy" / "figure-1.md").read_text()
    assert "| > 20 |" in page and "run: does not agree" in page
    assert main(words) == 0
    page = (tmp_path / "pages" / "toy" / "figure-1.md").read_text()
    assert "| last gap: ours |" in page and "| last gap: ours, not judged |" in page
    assert "(did not train) |" in page and "> " not in page.replace(" -> ", "")


def test_what_was_not_run_says_what_it_takes(undrawn, tmp_path, capsys):
    file = undrawn / "toy" / "figure-1.toml"
    file.write_text(file.read_text().replace("[item]\n", '[item]\ntakes = "a blink"\n'))
    words = ["reproduce", "toy", "--kept", "--out", str(tmp_path), "--json"]
    assert main(words) == 0
    (numbers,) = json.loads(capsys.readouterr().out)
    assert (numbers["pairs"], numbers["ordered"], numbers["takes"]) == ([0, 2], [0, 0], "a blink")
    for page in ("toy/figure-1.md", "README.md"):
        assert "a blink" in (tmp_path / "pages" / page).read_text()
    assert main(["reproduce", "toy", "--out", str(tmp_path)]) == 0
    for page in ("toy/figure-1.md", "README.md"):
        assert "a blink" not in (tmp_path / "pages" / page).read_text()


def test_seeds_are_told_of_each_method_where_they_differ(undrawn, tmp_path, capsys, seeded):
    words = ["reproduce", "toy/figure-1", "--out", str(tmp_path)]
    assert main(words) == 0
    page = tmp_path / "pages" / "toy" / "figure-1.md"
    assert "| seeds |" not in page.read_text()
    assert main([*words, "--only", "SCAFFOLD", "--seeds", "2"]) == 0
    assert "| SCAFFOLD | 40 | 2 |" in page.read_text() and "| FedAvg | 40 | 1 |" in page.read_text()
    assert "* 1 to 2 seeds" in page.read_text() and "| 1 to 2 | cpu |" in read_index(page)
    told = capsys.readouterr()
    assert "1 to 2" in told.out + told.err


def test_claims_stand_once_with_the_items_that_answer_them():
    pages = [
        {"item": "fedacg/table-a", "claim": "It is first.", "answer": "yes", "why": ""},
        {"item": "fedacg/table-b", "claim": "It is first.", "answer": "no", "why": "It is third"},
        {"item": "fedcet/figure-1", "claim": "", "answer": "", "why": ""},
    ]
    text = claims(pages)
    row = "| It is first. | [table-a](fedacg/table-a.md) | [table-b](fedacg/table-b.md) |  |  |"
    assert text.count("It is first.") == 1 and row in text
    assert "* fedacg/table-b: no. It is third." in text


def read_index(page):
    return (page.parent.parent / "README.md").read_text()


def test_time_is_up(undrawn, tmp_path, capsys):
    words = ["reproduce", "toy", "--out", str(tmp_path)]
    assert main([*words, "--minutes", "1e-9"]) == 0
    assert "Stopped" in capsys.readouterr().err
    assert main(words) == 0
    assert "all" not in capsys.readouterr().err.partition("kept")[0]


def run_toy(out, pages, *more):
    return main(["reproduce", "toy/figure-1", "--out", str(out), "--pages", str(pages), *more])


def test_a_second_seed_that_is_not_over_changes_no_number(undrawn, tmp_path, capsys, seeded):
    page = tmp_path / "pages" / "toy" / "figure-1.json"
    assert run_toy(tmp_path, tmp_path / "pages") == 0
    before = json.loads(page.read_text())
    assert run_toy(tmp_path, tmp_path / "pages", "--seeds", "2", "--rounds", "10") == 0
    after = json.loads(page.read_text())
    assert after["found"]["rounds"] > before["found"]["rounds"]
    assert (after["panels"], after["verdict"]) == (before["panels"], before["verdict"])


@pytest.mark.parametrize(
    ("words", "near"),
    [(["tpy"], "did you mean toy"), ([], "nothing to"), (["toy", "--only", "SCAFOLD"], "SCAFFOLD")],
)
def test_wrong_names_are_refused(papers, tmp_path, capsys, words, near):
    with pytest.raises(SystemExit) as ended:
        main(["reproduce", *words, "--out", str(tmp_path)])
    assert ended.value.code == 2 and near in capsys.readouterr().err


def test_packing_needs_no_items(undrawn, tmp_path, capsys):
    a, b, pack = tmp_path / "a", tmp_path / "b", tmp_path / "runs.zip"
    assert main(["reproduce", "toy", "--out", str(a), "--pack", str(pack)]) == 0
    assert "3 runs packed" in capsys.readouterr().err
    assert main(["reproduce", "--out", str(b), "--unpack", str(pack)]) == 0
    assert main(["reproduce", "toy", "--out", str(b)]) == 0
    assert "3 kept, 0 to do" in capsys.readouterr().err


def test_what_is_over_is_packed_though_the_machine_goes_away(undrawn, tmp_path, monkeypatch):
    pack, real, begun = tmp_path / "runs.zip", perform.carry_out, []

    def carried(*given):
        begun.append(given)
        if len(begun) == 3:
            raise SystemExit
        real(*given)

    monkeypatch.setattr(perform, "carry_out", carried)
    with pytest.raises(SystemExit):
        main(["reproduce", "toy", "--out", str(tmp_path / "a"), "--pack", str(pack)])
    assert Cache(tmp_path / "b").unpack(pack) == 2


def test_a_page_stays_where_nothing_is_kept(undrawn, tmp_path):
    pages = tmp_path / "pages"
    assert run_toy(tmp_path / "whole", pages) == 0
    before = (pages / "toy" / "figure-1.md").read_bytes()
    assert run_toy(tmp_path / "none", pages, "--kept") == 0
    assert (pages / "toy" / "figure-1.md").read_bytes() == before


def test_data_that_are_absent_are_the_reason(tmp_path, monkeypatch, capsys):
    monkeypatch.delenv("UNDRIFT_DATA", raising=False)
    code = main(["reproduce", "fedrecu/figure-8", "--out", str(tmp_path)])
    said = capsys.readouterr()
    assert code == 1 and "not run" in said.out
    assert len([line for line in said.err.splitlines() if "not run: " in line]) == 1
    assert "cifar10 is not there" in (tmp_path / "pages" / "fedrecu" / "figure-8.md").read_text()
