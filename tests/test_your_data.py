"""What docs/your-data.md does with CSV files, beyond what its blocks show."""

import re
import tomllib
from pathlib import Path

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression

import undrift as ud
from undrift.core import registry
from undrift.data import tables
from undrift.spec.reader import parse

DOCS = Path(__file__).parents[1] / "docs"


def blocks(page, language):
    """The blocks of code of a page in one language."""
    text = (DOCS / page).read_text(encoding="utf-8")
    return re.findall(rf"^```{language}\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)


BLOCKS = blocks("your-data.md", "python")
_, WARDS_SPEC, FEDERATED, ADAMW = blocks("your-data.md", "toml")


MAKE, WARDS, CONVERT = (
    next(code for code in BLOCKS if word in code)
    for word in ('open("wards.csv", "w"', "def wards(", "def to_svmlight(")
)


@pytest.fixture
def recipe(tmp_path, monkeypatch):
    """What the page defines for CSV files, in a folder with its example."""
    monkeypatch.chdir(tmp_path)
    names = {}
    for code in (MAKE, WARDS, CONVERT):
        exec(code, names)
    return names


def test_a_csv_file_becomes_a_problem_and_a_file_for_a_federation(recipe, tmp_path):
    Path("wards.py").write_text(WARDS, encoding="utf-8")
    Path("spec.toml").write_text(WARDS_SPEC, encoding="utf-8")
    assert recipe["wards"]().clients == 3
    assert ud.run_spec("spec.toml")["Scaffold", 0].history.last["accuracy"] > 0.9
    table = tables.load("wards", tmp_path)
    read = np.genfromtxt("wards.csv", delimiter=",", skip_header=1, usecols=(0, 2))
    sex, ill = np.genfromtxt("wards.csv", str, delimiter=",", skip_header=1, usecols=(1, 3)).T
    assert np.allclose(table.features[:, :2], (read - [60, 5]) / [10, 2], rtol=0, atol=1e-12)
    assert np.array_equal(table.features[:, 2:].T, [sex == "female", sex == "male"])
    assert np.array_equal(table.labels, np.where(ill == "yes", 1, -1))


def test_a_federation_of_csv_files_classifies_as_scikit_learn_does(recipe, tmp_path):
    table = tables.load("wards", tmp_path)
    best = LogisticRegression(C=1).fit(table.features, table.labels)
    asked = tomllib.loads(FEDERATED)["problem"]
    specs = map(tomllib.loads, blocks("federation.md", "toml"))
    (documented,) = (spec for spec in specs if spec.get("name") == "wards")
    assert documented["problem"]["intercept"] is asked["intercept"] is True
    del documented["engine"]
    documented["problem"] |= {**asked, "folder": str(tmp_path)}
    run = ud.run_spec(documented)["Scaffold", 0]
    right = best.score(table.features, table.labels)
    assert right > 0.99 and run.history.last["accuracy"] >= right - 0.01
    numbers = table.features[:, :2], table.labels
    for intercept, said in ((True, 0.95), (False, 0.73)):  # the page's
        alone = LogisticRegression(C=1, fit_intercept=intercept).fit(*numbers)
        assert alone.score(*numbers) == pytest.approx(said, abs=0.005)


@pytest.mark.parametrize("cell", ["", "NA", "nan", "inf", "-"])
@pytest.mark.parametrize("column", ["age", "sex", "dose", "ill"])
def test_a_missing_number_is_named_and_never_made_up(recipe, cell, column):
    lines = ["age,sex,dose,ill,site", *(f"{50 + k},male,{k},no,north" for k in range(6))]
    row = dict(zip(lines[0].split(","), lines[3].split(","), strict=True))
    lines[3] = ",".join((row | {column: cell}).values())
    Path("wards.csv").write_text("\n".join(lines) + "\n", encoding="utf-8")
    ways = (recipe["wards"], lambda: recipe["to_svmlight"]("wards.csv", "gaps"))
    for way in ways:
        with pytest.raises(ValueError, match=f"{column} of line 4"):
            way()
    assert not Path("gaps").exists()


def test_its_spec_is_a_good_one():
    (entry,) = parse(ADAMW).entries
    assert entry.options.training.optimiser and entry.options.schedule


def test_the_page_names_all_methods_with_a_weighted_mean():
    weighted = sorted(name for name, method in registry.items() if method.weighted)
    named = f"{', '.join(weighted[:-1])} and {weighted[-1]} take it"
    assert named in " ".join((DOCS / "your-data.md").read_text(encoding="utf-8").split())
