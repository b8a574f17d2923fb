"""``cite`` prints the papers of methods: every paper that a docstring names has an entry."""

import json
import re
import tomllib
import unicodedata
from pathlib import Path

import pytest

from undrift import __version__
from undrift.cli import main
from undrift.methods import registry as methods
from undrift.methods._papers import cited, papers, reference
from undrift.objectives import registry as objectives

ROOT = Path(__file__).parents[2]
ALL = {**methods, **objectives}
SHIPPED = {name: cls for name, cls in ALL.items() if cls.__module__.startswith("undrift.")}
VENUES = {
    "ICML": "International Conference on Machine Learning",
    "ICLR": "International Conference on Learning Representations",
    "NeurIPS": "Advances in Neural Information Processing Systems",
    "CVPR": "IEEE/CVF Conference on Computer Vision and Pattern Recognition",
    "AISTATS": "International Conference on Artificial Intelligence and Statistics",
    "MLSys": "Proceedings of Machine Learning and Systems",
    "ICDE": "IEEE International Conference on Data Engineering",
    "CDC": "IEEE Conference on Decision and Control",
}
UNDATED = {"fedrecu", "liu_fedcet"}
"""Papers without a year of publication."""


def told(capsys, *words):
    assert main(["cite", *words]) == 0
    return capsys.readouterr().out


def fields(entry):
    """Of an entry, which must be one: a kind, a key, fields, and braces that are closed."""
    depth = 0
    for sign in re.sub(r"\\[{}]", "", entry):
        depth += {"{": 1, "}": -1}.get(sign, 0)
        assert depth >= 0
    assert depth == 0
    head, *lines, end = entry.splitlines()
    assert re.fullmatch(r"@(article|inproceedings|misc|software|unpublished)\{\w+,", head)
    assert end == "}"
    found = [re.fullmatch(r"  (\w+) = \{(.+)\}(,?)", line) for line in lines]
    assert all(found) and [one[3] for one in found] == [","] * (len(found) - 1) + [""], entry
    return {one[1]: one[2] for one in found}


@pytest.mark.parametrize("name", SHIPPED)
def test_the_papers_of_a_method(name, capsys):
    cls = ALL[name]
    titles = re.findall(r'"([^"]+)"', reference(cls))
    entries = cited(cls)
    assert len(entries) == len(titles) > 0
    for title, entry in zip(titles, entries.values(), strict=True):
        found = fields(entry)
        if found["title"].isascii() and "\\" not in found["title"]:
            assert re.sub(r"[{}]", "", found["title"]).casefold() == title.casefold()
    out = told(capsys, name)
    assert out.startswith(f"% {name}: {reference(cls)}\n\n@")
    assert all(entry in out for entry in entries.values())


@pytest.mark.parametrize("key", sorted(papers()))
def test_an_entry_says_what_the_docstrings_say(key):
    """Authors, venue, year and number at arXiv."""
    found = fields(papers()[key])
    assert {"author", "title"} <= found.keys() and ("year" in found) == (key not in UNDATED)
    said = [reference(cls) for cls in SHIPPED.values() if key in cited(cls)]
    assert said or key == "undrift"
    for text in said:
        (about,) = (part for part in parts(text) if key in keys_of(part))
        families = [name.split(",")[0].strip("{}") for name in found["author"].split(" and ")]
        if key != "fedrecu":
            listed = re.split(", | and ", about.split(', "')[0])
            assert [plain(one) for one in families] == [plain(one) for one in listed]
        assert found.get("eprint") == (re.findall(r"arXiv:([0-9.]+[0-9])", about) or [None])[0]
        assert found.get("year", "") in about
        short = next((one for one in VENUES if f", {one} " in about), None)
        assert found.get("booktitle") == VENUES.get(short)


def parts(text):
    """One piece of a reference for each paper."""
    return [one + "." for one in re.split(r"\.\s+(?=[A-Z][\w ,üč]+, \"|\"Lever)", text)]


def keys_of(text):
    return cited(type("Cited", (), {"__doc__": f"One.\n\nReferences:\n    {text}\n"}))


def plain(name):
    text = re.sub(r"\\.\{?|[{}]", "", name)
    return unicodedata.normalize("NFKD", text).encode("ascii", "ignore").decode()


def test_undrift_itself(capsys):
    found = fields(told(capsys).strip())
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert found["version"] == __version__ and found["url"] == project["urls"]["Source"]
    cff = (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    assert f'title: "{found["title"]}"' in cff


def test_several_and_as_json(capsys):
    out = told(capsys, "FedRed", "dane+", "MOON")
    assert out.count("@inproceedings{jiang2024fedred,") == 1 and "% DANEPlus: Jiang" in out
    rows = json.loads(told(capsys, "EXTRA", "--json"))
    assert [row["keys"] for row in rows] == [["shi2015extra", "fedrecu"]]
    assert fields(rows[0]["bibtex"].split("\n\n")[0])["year"] == "2015"
    assert rows[0]["reference"] == reference(ALL["EXTRA"])


def test_who_is_unknown(capsys):
    with pytest.raises(SystemExit, match="2"):
        main(["cite", "Scafold", "FedAvg"])
    assert "did you mean Scaffold?" in capsys.readouterr().err


def test_show_names_the_key(capsys):
    assert main(["show", "FedAvg"]) == 0
    assert "Cited as     mcmahan2017fedavg (undrift cite FedAvg)" in capsys.readouterr().out
