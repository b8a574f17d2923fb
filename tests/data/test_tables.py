"""Tables by name: bundled, from a folder, compressed; those that cannot be read."""

import bz2
import dataclasses
import gzip
import io
import lzma
import os
import re
from pathlib import Path

import numpy as np
import pytest
from sklearn import datasets

import undrift
from undrift.core.params import BadParameters
from undrift.data.files import BadData
from undrift.data.tables import FORMAT, load
from undrift.problems.by_file import own
from undrift.problems.named.regressions import LogisticRegression
from undrift.spec.document import toml
from undrift.spec.errors import BadSpec
from undrift.spec.reader import load as load_spec

TEXT = b"2 1:0.5 3:-1\n1 2:4\n2 1:1e-3 # a comment\n"
FEATURES = [[0.5, 0, -1], [0, 4, 0], [1e-3, 0, 0]]
PACK = {"": bytes, ".xz": lzma.compress, ".bz2": bz2.compress, ".gz": gzip.compress}


@pytest.mark.parametrize("packed", PACK)
@pytest.mark.parametrize("text", ["", ".svmlight"])
@pytest.mark.parametrize("inner", ["", "svmlight"])
def test_files_are_found_and_read(tmp_path, inner, text, packed):
    (tmp_path / inner).mkdir(exist_ok=True)
    (tmp_path / inner / f"toy.t{text}{packed}").write_bytes(PACK[packed](TEXT))
    table = load("toy.t", tmp_path)
    assert table.name == "toy.t"
    assert table.features.dtype == np.float64
    np.testing.assert_array_equal(table.features, FEATURES)
    assert table.labels.tolist() == [1, -1, 1]


def test_missing_names_get_the_nearest_and_the_places(tmp_path):
    (tmp_path / "svmlight").mkdir()
    for name in ("a9a.svmlight.xz", "w8a.bz2", "phishing"):
        (tmp_path / "svmlight" / name).touch()
    with pytest.raises(ValueError) as caught:
        load("a9b", tmp_path)
    message = str(caught.value)
    assert "did you mean a9a?" in message
    assert "allowed: breast-cancer, digits, a9a, phishing, w8a;" in message
    assert str(tmp_path) in message and str(tmp_path / "svmlight") in message


def test_a_folder_of_many_files_is_not_listed_whole(tmp_path):
    for k in range(100):
        (tmp_path / f"ward-{k:02}").touch()
    with pytest.raises(BadData) as caught:
        load("wrd-97", tmp_path)
    message = str(caught.value)
    assert "did you mean ward-97?" in message
    assert message.count("ward-") == 1 + 8 and "and 92 more" in message


def test_no_folder(monkeypatch, tmp_path):
    monkeypatch.delenv("UNDRIFT_DATA", raising=False)
    with pytest.raises(
        ValueError, match=r"unknown data set 'digit'; did you mean digits.*set UNDRIFT_DATA"
    ):
        load("digit")
    with pytest.raises(ValueError, match="does not exist"):
        load("a9a", tmp_path / "nowhere")


@pytest.mark.parametrize("name", ["../toy", "svmlight/toy", "", ".."])
def test_names_are_not_paths(tmp_path, name):
    (tmp_path / "toy").write_bytes(TEXT)
    (tmp_path / "inner" / "svmlight").mkdir(parents=True)
    (tmp_path / "inner" / "svmlight" / "toy").write_bytes(TEXT)
    with pytest.raises(ValueError, match=r"plain name|unknown data set"):
        load(name, tmp_path / "inner")


WHOLE = lzma.compress(TEXT * 100)


@pytest.mark.parametrize(
    ("name", "content"),
    {
        "toy.xz": WHOLE[: len(WHOLE) // 2],
        "toy.svmlight.xz": WHOLE[:40] + bytes([WHOLE[40] ^ 1]) + WHOLE[41:],
        "toy.gz": gzip.compress(TEXT)[:-9],
        "toy.bz2": b"BZh91AY&SY" + b"x" * 40,
    }.items(),
    ids=str.split("xz svmlight-xz gz bz2"),
)
def test_corrupt_files_get_one_sentence(tmp_path, name, content):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(ValueError) as caught:
        load("toy", tmp_path)
    message = str(caught.value)
    assert str(tmp_path / name) in message and "cannot be read" in message and "\n" not in message


def npz():
    content = io.BytesIO()
    np.savez(content, features=np.eye(3), label=np.arange(3))
    return content.getvalue()


@pytest.mark.parametrize(
    "content",
    [
        b"age,dose,label,site\n61,0.5,1,north\n",
        npz(),
        b"this is not svmlight\n",
        b"1 1:0.5\n-1 99999999999999999999:1\n",
        b"1 1:0.5\n-1 1:2\n1 2=3\n",
    ],
    ids=str.split("csv npz words index colon"),
)
def test_other_formats_are_told_which_one_is_read(tmp_path, content):
    (tmp_path / "toy").write_bytes(content)
    with pytest.raises(BadData) as caught:
        load("toy", tmp_path)
    message = str(caught.value)
    assert message.startswith(str(tmp_path / "toy")) and message.endswith(FORMAT)


@pytest.mark.parametrize(("text", "count"), [(b"1 1:1\n2 1:1\n3 1:1\n", 3), (b"1 1:1\n1 1:2\n", 1)])
def test_two_labels_exactly(tmp_path, text, count):
    (tmp_path / "toy").write_bytes(text)
    with pytest.raises(ValueError, match=rf"toy has as labels .* {count} in all"):
        load("toy", tmp_path)


@pytest.mark.parametrize(("labels", "sign"), [([1, 2], -1.0), ([2, 1], -1.0), ([0, 1], 1.0)])
def test_a_file_of_one_label_says_which_by_name(tmp_path, labels, sign):
    (tmp_path / "toy").write_bytes(b"1 1:1\n1 1:2\n")
    assert load("toy", tmp_path, labels).labels.tolist() == [sign, sign]
    kind = LogisticRegression(data="toy", folder=str(tmp_path), labels=labels)
    alone = own(kind, None, [2, 3])
    assert alone.clients == 1 and alone.rows[:2].tolist() == [[-sign], [-2 * sign]]


def test_an_intercept_is_a_last_column_of_ones(tmp_path):
    (tmp_path / "toy").write_bytes(b"0 1:5 2:3\n1 1:2\n")
    kind = LogisticRegression(data="toy", folder=str(tmp_path), clients=1, intercept=True)
    expected = sorted([[5.0, 3.0, 1.0], [-2.0, 0.0, -1.0]])
    for problem in (kind.build(), own(kind, None, [2, 3])):
        assert problem.dim == 3 and sorted(problem.rows[:2].tolist()) == expected
    assert dataclasses.replace(kind, intercept=False).build().dim == 2


def test_labels_that_do_not_fit_are_refused(tmp_path):
    (tmp_path / "toy").write_bytes(b"1 1:1\n3 1:2\n")
    with pytest.raises(ValueError, match="as labels 1, 3, 2 in all;"):
        load("toy", tmp_path, [0, 1])
    with pytest.raises(ValueError, match="breast-cancer"):
        load("breast-cancer", labels=[0, 1])
    for wrong in ([1], [1, 1], [0, 1, 2]):
        with pytest.raises(BadParameters) as caught:
            LogisticRegression(labels=wrong)
        assert [*caught.value.problems] == ["labels"]


def test_last_columns_may_be_all_zero_where_their_number_is_given(tmp_path):
    (tmp_path / "toy").write_bytes(TEXT)
    assert load("toy", tmp_path, columns=3).features.tolist() == FEATURES
    wider = [[*row, 0, 0] for row in FEATURES]
    assert load("toy", tmp_path, columns=5).features.tolist() == wider
    kind = LogisticRegression(data="toy", folder=str(tmp_path), clients=1, features=5)
    assert kind.build().dim == 5
    assert dataclasses.replace(kind, intercept=True).build().dim == 6
    (tmp_path / "empty").write_bytes(b"1\n2\n")
    assert load("empty", tmp_path, columns=2).features.tolist() == [[0, 0], [0, 0]]


def test_columns_that_do_not_fit_are_refused(tmp_path):
    (tmp_path / "toy").write_bytes(TEXT)
    with pytest.raises(ValueError, match="features = 2"):
        load("toy", tmp_path, columns=2)
    (tmp_path / "zero").write_bytes(b"1 0:1 2:4\n2 1:3\n")
    with pytest.raises(ValueError, match="columns from 1"):
        load("zero", tmp_path, columns=3)
    with pytest.raises(ValueError, match="leave them out for breast-cancer"):
        load("breast-cancer", columns=30)


def test_sets_too_wide_for_a_dense_array_are_refused_before_allocation(tmp_path):
    (tmp_path / "toy").write_bytes(b"1 1:1\n-1 2000000000:1\n")
    with pytest.raises(ValueError, match="as a dense array"):
        load("toy", tmp_path)


def test_breast_cancer():
    table = load("breast-cancer")
    target = datasets.load_breast_cancer().target
    np.testing.assert_allclose(table.features.mean(0), 0, atol=1e-12)
    np.testing.assert_allclose(table.features.std(0), 1, rtol=1e-12)
    np.testing.assert_array_equal(table.labels, 2 * target - 1)


def test_digits():
    table, raw = load("digits"), datasets.load_digits()
    np.testing.assert_array_equal(table.features * 16, raw.data)
    np.testing.assert_array_equal(table.labels == 1, np.isin(raw.target, [1, 3, 5, 7, 9]))
    assert set(table.labels) == {-1, 1}


REAL = os.environ.get("UNDRIFT_DATA", "")
real = pytest.mark.skipif(
    not (REAL and (Path(REAL) / "svmlight").is_dir()),
    reason="UNDRIFT_DATA does not name a folder with svmlight sets",
)
SHAPES = {
    "a9a": (32561, 123),
    "a9a.t": (16281, 122),
    "mushrooms": (8124, 112),
    "phishing": (11055, 68),
}


@real
@pytest.mark.parametrize("name", SHAPES)
def test_real_sets(name):
    table = load(name)
    assert table.features.shape == SHAPES[name]
    assert set(table.labels) == {-1.0, 1.0}


@real
def test_a_set_with_twenty_classes_is_refused():
    with pytest.raises(ValueError, match=r"news20.* 20 in all"):
        load("news20")


def test_a_set_that_is_refused_is_not_unfolded_first(tmp_path):
    (tmp_path / "wide.svm").write_text("1 2:1\n2 2000000000:1\n3 3:1\n")
    with pytest.raises(ValueError, match="3 in all"):
        load(str(tmp_path / "wide.svm"))


ROWS = ["age,label,dose", "61,1,0.5", "48,0,2", "55,1,-1e-3"]


def csv_file(folder, lines=ROWS, name="mine.csv"):
    text = "\n".join(lines) + "\n"
    (folder / name).write_text(text, encoding="utf-8-sig")
    return folder / name


def test_a_csv_file_is_read_by_its_header(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    csv_file(tmp_path)
    table = load("mine.csv")
    assert table.features.tolist() == [[61, 0.5], [48, 2], [55, -1e-3]]
    assert table.labels.tolist() == [1, -1, 1] and table.classes == ("0", "1")
    assert load("mine.csv", ".").features.tolist() == table.features.tolist()
    words = [line.replace(",1,", ",yes,").replace(",0,", ",no,") for line in ROWS]
    packed = csv_file(tmp_path, words).read_bytes()
    (tmp_path / "mine.csv.gz").write_bytes(gzip.compress(packed))
    assert load(str(tmp_path / "mine.csv.gz")).classes == ("no", "yes")
    assert load("mine.csv").labels.tolist() == table.labels.tolist()


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({0: "age,class,dose"}, "no column label, but age, class, dose: say which, as label ="),
        ({2: "48,0,NA"}, "or no numbers, 1 in all: first dose of line 3"),
        ({2: "48,0"}, "dose of line 3"),
        ({2: "48,,1"}, "label of line 3"),
        ({2: "48,null,1"}, "label of line 3"),
        ({1: "?,0,1", 2: "48,0,1,7"}, "line 3 has a cell too many"),
        ({2: '"48,5",0,1'}, "age has decimal commas"),
        ({1: '"6,5",0,1', 2: '"48,5",0,1', 3: "7,1,2"}, "age has decimal commas"),
        ({2: "inf,0,1"}, "age of line 3"),
        ({2: "48,2,1", 3: "48,0,1"}, "as labels 0, 1, 2, 3 in all; .* leave the rows of others"),
        ({2: "48,no,1", 3: "1,a,1"}, "as labels 1, a, no, 3 in all;"),
    ],
)
def test_a_csv_file_with_something_else_is_refused(tmp_path, change, said):
    lines = [change.get(k, line) for k, line in enumerate(ROWS)]
    with pytest.raises(ValueError, match=said):
        load(str(csv_file(tmp_path, lines)))


@pytest.mark.parametrize("mark", [";", "\t"])
def test_columns_may_be_separated_by_other_marks(tmp_path, mark):
    same = load(str(csv_file(tmp_path)))
    found = load(str(csv_file(tmp_path, [line.replace(",", mark) for line in ROWS])))
    assert found.columns == same.columns and np.array_equal(found.features, same.features)


@pytest.mark.parametrize("cell", ["NA", "N/A", "NaN", "null", "None", "?"])
def test_a_missing_word_is_no_word(tmp_path, cell):
    lines = PATIENTS.replace("current", cell).split()
    with pytest.raises(BadData, match="1 in all: first smoker of line 5;"):
        load(str(csv_file(tmp_path, lines)), label="outcome", group="hospital")
    lines = PATIENTS.replace("current", "none").split()
    assert "smoker=none" in load(str(csv_file(tmp_path, lines)), label="outcome").columns


@pytest.mark.parametrize(("largest", "warnings"), [(9e5, 1), (9e2, 0)])
def test_columns_of_very_different_scales_are_a_warning(tmp_path, recwarn, largest, warnings):
    file = csv_file(tmp_path, ["a,b,c,label", f"1,{largest},0,0", "0.9,4,0,1"])
    for standardise in (False, True):
        LogisticRegression(data=str(file), clients=1, standardise=standardise).build()
    assert ["set standardise = true" in str(one.message) for one in recwarn] == [True] * warnings


PATIENTS = """\
age,smoker,sex,outcome,hospital
60,never,f,yes,Cork
40,former,m,no,Bern
50,never,m,yes,Cork
70,current,f,no,Bern
"""


def test_a_table_with_words_and_clients(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("patients.csv").write_text(PATIENTS, encoding="utf-8")
    table = load("patients.csv", label="outcome", group="hospital")
    kinds = "smoker=current smoker=former smoker=never sex=f sex=m"
    assert table.columns == ("age", *kinds.split()) and table.classes == ("no", "yes")
    assert table.features[0].tolist() == [60, 0, 0, 1, 1, 0] and table.groups[:2] == (
        "Cork",
        "Bern",
    )
    named = {"data": "patients.csv", "label": "outcome", "group": "hospital", "clients": 2}
    problem = LogisticRegression(**named, standardise=True, l2=0.1).build()
    assert problem.clients == 2 and problem.samples == [2, 2]
    rows = problem.rows[:-1].numpy()  # -label * features, the clients in ascending order
    signs = np.array([-1, -1, 1, 1])[:, None]  # of Bern, where both are no, and of Cork
    order = [1, 3, 0, 2]
    right = (table.features - table.features.mean(0)) / table.features.std(0)
    np.testing.assert_allclose(rows, -signs * right[order], atol=1e-14)
    problem = LogisticRegression(**named, standardise=True, intercept=True).build()
    assert problem.columns == (*table.columns, "intercept")
    kept = problem.tensors(problem.start())
    raw = np.column_stack([table.features, np.ones(4)])
    scaled = (raw - kept["mean"].numpy()) / kept["sd"].numpy()
    assert np.array_equal(scaled[order], -signs * problem.rows[:-1].numpy())
    plain = LogisticRegression(**named).build()
    assert plain.columns == table.columns and {*plain.tensors(plain.start())} == {"x"}
    assert float(plain.mean) == 0 and float(plain.sd) == 1


def test_spaces_around_cells_mean_nothing(tmp_path):
    spaced = ["age, smoker, label", '60 , never, "yes "', "40,former , no", " 50,never,yes"]
    plain = [re.sub('[ "]', "", line) for line in spaced]
    found, same = load(str(csv_file(tmp_path, spaced))), load(str(csv_file(tmp_path, plain)))
    assert found.columns == same.columns == ("age", "smoker=former", "smoker=never")
    assert found.features.tolist() == same.features.tolist() and found.classes == ("no", "yes")


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("smoker", "never Never"),
        ("smoker", "never ne\xa0ver"),
        ("label", "yes YES"),
        ("site", "A a"),
    ],
)
def test_one_word_in_two_spellings_is_refused(name, words, tmp_path):
    usual = {"smoker": "never", "label": "yes", "site": "A"}
    rows = [",".join((usual | {name: word}).values()) for word in words.split(" ")]
    first, second = words.split(" ")
    said = f"{name} has {first!r}, and in line 3 {second!r}, which differ in capitals or spaces"
    with pytest.raises(BadData, match=re.escape(said)):
        load(str(csv_file(tmp_path, ["smoker,label,site", *rows, "never,no,A"])), group="site")


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (
            {"label": "outcome", "group": "ward"},
            "has no column ward, but age, smoker, sex, outcome",
        ),
        (
            {"label": "outcome", "group": "hospital", "clients": 3},
            "hospital has 2 values: give cli",
        ),
        ({"group": "hospital", "partition": "iid"}, "hospital says who holds what"),
        ({"group": "hospital", "folder": "."}, "for a file of all clients"),
        ({"standardise": True, "folder": "."}, "for a file of all clients"),
        ({"data": "breast-cancer", "group": "hospital"}, "group are for files"),
        ({"data": "toy.svm", "label": "outcome"}, "label and group are for CSV files"),
    ],
)
def test_what_a_table_lacks_is_named(given, said, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("patients.csv").write_text(PATIENTS, encoding="utf-8")
    Path("toy.svm").write_bytes(TEXT)
    with pytest.raises(ValueError, match=said):
        LogisticRegression(**{"data": "patients.csv", "clients": 2} | given).build()


def test_a_spec_is_told_which_of_its_lines_names_no_column(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("patients.csv").write_text(PATIENTS, encoding="utf-8")
    table = {"name": "logistic", "data": "patients.csv", "label": "outcome", "group": "ward"}
    method = {"name": "FedAvg", "lr": 0.1}
    spec = toml({"name": "a", "rounds": 1, "problem": table, "method": [method]})
    Path("a.toml").write_text(spec, encoding="utf-8")
    line = spec.split("\n").index('group = "ward"') + 1
    for flags, place in (((), f"a.toml:{line}"), (["problem.group=room"], "-s problem.group=room")):
        with pytest.raises(BadSpec) as caught:
            undrift.run_spec("a.toml", overrides=flags)
        assert str(caught.value).startswith(f"{place}: patients.csv has no column")


def test_a_column_of_names_is_not_made_into_columns(tmp_path):
    rows = [f"w{k},{k % 2}" for k in range(40)]
    with pytest.raises(BadData, match="name has 40 different words: leave it out"):
        load(str(csv_file(tmp_path, ["name,label", *rows])))


def test_a_column_that_never_changes_stays(tmp_path):
    file = csv_file(tmp_path, ["a,b,label", "1,2,0", "1,4,1"])
    problem = LogisticRegression(data=str(file), clients=1, standardise=True).build()
    assert problem.rows[:2].numpy().tolist() == [[0, -1], [0, -1]]


def test_a_binary_file_is_no_csv_file(tmp_path):
    (tmp_path / "x.csv").write_bytes(bytes(range(256)))
    with pytest.raises(BadData, match="save it as CSV in UTF-8"):
        load(str(tmp_path / "x.csv"))
    with pytest.raises(ValueError, match="features is for svmlight files"):
        load(str(csv_file(tmp_path)), columns=3)


def test_a_path_is_beside_the_spec_or_from_here(tmp_path, monkeypatch):
    inner = tmp_path / "inner"
    inner.mkdir()
    csv_file(inner)
    (inner / "mine.svm").write_bytes(TEXT)
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("UNDRIFT_DATA", raising=False)
    table = {"name": "logistic", "clients": 1}
    method = [{"name": "FedAvg", "lr": 0.01}]
    for data in ("mine.svm", "mine.csv"):
        text = toml({"rounds": 1, "name": "x", "problem": table | {"data": data}, "method": method})
        (inner / "spec.toml").write_text(text)
        spec = load_spec(inner / "spec.toml")
        assert spec.problem.data == f"inner/{data}" and spec.problem.build().total == 3
        undrift.run_spec(inner / "spec.toml", save=tmp_path / data)
        assert undrift.resume(tmp_path / data)["FedAvg"].status == "done"
        assert undrift.run(
            undrift.FedAvg(lr=0.01), "logistic", data=f"inner/{data}", clients=1, rounds=1
        )
        with pytest.raises(BadData, match=f"there is no file {data} beside the spec or in"):
            load(data)
    absolute = LogisticRegression(data=str(inner / "mine.csv"))
    assert absolute.beside(inner) is absolute
    named = LogisticRegression(data="mine.csv", folder=str(inner), clients=1)
    assert named.beside(inner) is named and named.build().total == 3
