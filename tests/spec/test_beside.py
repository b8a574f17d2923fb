"""Modules that a user's file imports from its own folder."""

import sys
from queue import SimpleQueue
from types import SimpleNamespace

import pytest
from tests.spec.texts import MINE

import undrift as ud
from undrift.records.folder import BadFolder
from undrift.runs.worker import work
from undrift.spec import plugins
from undrift.spec.beside import beside, sources
from undrift.spec.errors import BadFile, BadSpec
from undrift.spec.reader import load

METHOD = """\
from undrift.methods.fedavg import FedAvg
from rates import RATE

class Mine(FedAvg):
    mu: float = RATE
"""
SPEC = """\
name = "own"
rounds = 2
[problem]
name = "quadratic"
clients = 4
[[method]]
file = "mine.py"
name = "Mine"
lr = 0.02
"""


@pytest.fixture
def place(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [p for p in sys.path if p])
    write(tmp_path, {"mine.py": METHOD, "rates.py": "RATE = 0.5\n", "s.toml": SPEC})
    before = {*sys.modules}
    yield tmp_path
    for name in {*sys.modules} - before:  # libraries stay
        if (getattr(sys.modules[name], "__file__", None) or "").startswith(str(tmp_path)):
            del sys.modules[name]


def write(folder, files):
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)


def mu(folder):
    return load(folder / "s.toml").entries[0].method.mu


def test_a_module_belongs_to_the_file_that_imports_it(place):
    spec = load("s.toml")
    assert [*spec.sources] == ["mine.py", "rates.py"]
    assert spec.sources["rates.py"] == b"RATE = 0.5\n" and spec.entries[0].method.mu == 0.5
    write(place, {"rates.py": "RATE = 0.7\n"})
    assert mu(place) == 0.7 and load("s.toml").identity != spec.identity


def test_a_file_that_imports_nothing_from_beside_is_what_it_was(place):
    write(place, {"mine.py": METHOD.replace("from rates import RATE", "RATE = 0.5")})
    assert [*load("s.toml").sources] == ["mine.py"]


def test_modules_of_modules_and_packages_are_found_and_no_others(place):
    write(
        place,
        {
            "rates.py": "import pack.inner\nfrom plain.deep import more\nRATE = pack.inner.one\n",
            "pack/__init__.py": "",
            "pack/inner.py": "from . import other\none = other.two\n",
            "pack/other.py": "two = 2.0\n",
            "plain/deep.py": "more = 1\n",
            "torch.py": "",
            "stray.py": "",
        },
    )
    assert {*beside(place / "mine.py")} == {"rates", "pack", "plain"}
    assert {*sources(place, ["mine.py"])} == {
        *("mine.py", "rates.py", "plain/deep.py"),
        *("pack/__init__.py", "pack/inner.py", "pack/other.py"),
    }
    assert mu(place) == 2.0


def test_every_file_gets_the_module_of_its_own_folder(place):
    for folder, rate in (("a", 1.5), ("b", 2.5)):
        write(place / folder, {"mine.py": METHOD, "rates.py": f"RATE = {rate}\n", "s.toml": SPEC})
    assert [mu(place / folder) for folder in ("a", "b", "a")] == [1.5, 2.5, 1.5]
    both = SPEC.replace("mine.py", "a/mine.py") + SPEC[SPEC.index("[[method]]") :].replace(
        '"mine.py"', '"b/mine.py"\nlabel = "other"'
    )
    write(place, {"both.toml": both})
    with pytest.raises(BadSpec) as caught:  # a program has one module of a name
        load("both.toml")
    assert [complaint.path for complaint in caught.value.complaints] == [("method", 1, "file")]


def test_two_files_share_a_module(place):
    entry = SPEC[SPEC.index("[[method]]") :].replace("mine", "more").replace("Mine", "More")
    write(
        place,
        {
            "rates.py": "RATE = 0.5\nloaded = []\n",
            "mine.py": METHOD + "import rates\nrates.loaded.append(1)\n",
            "more.py": METHOD.replace("Mine", "More")
            + "import rates\nassert rates.loaded == [1]\n",
            "s.toml": SPEC + entry,
        },
    )
    assert len(load("s.toml").entries) == 2


def test_the_modules_of_the_program_stay_its_own(place, monkeypatch):
    mine = type(sys)("rates")
    monkeypatch.setitem(sys.modules, "rates", mine)
    finders = [*sys.meta_path]
    assert mu(place) == 0.5
    assert sys.modules["rates"] is mine and sys.meta_path == finders


@pytest.mark.parametrize("file", ["mine.py", "rates.py"])
def test_an_import_inside_a_function_is_refused(place, file):
    late = "\ndef later():\n    import rates\n"
    lines = (place / file).read_text().count("\n")
    write(place, {file: (place / file).read_text() + late})
    with pytest.raises(BadFile) as caught:
        plugins.execute(place / "mine.py")
    assert (caught.value.file, caught.value.line) == (place / file, lines + 3)
    with pytest.raises(BadSpec) as told:
        load("s.toml")
    assert told.value.complaints[0].path == ("method", 0, "file")


def test_a_module_that_fails_is_told_with_the_line_that_imports_it(place):
    write(place, {"rates.py": "x = (\n"})
    with pytest.raises(BadFile) as caught:
        plugins.execute(place / "mine.py")
    assert (caught.value.file, caught.value.line) == (place / "mine.py", 2)


def test_a_worker_refuses_a_module_that_an_earlier_run_left_in_the_folder(place):
    write(place, {"mine.py": "try:\n    import rates\nexcept ImportError: ...\n" + MINE})
    (place / "rates.py").unlink()
    ud.run_spec("s.toml", save="kept")
    write(place / "kept", {"rates.py": ""})
    orders = SimpleQueue()
    orders.put(
        {"folder": "kept", "store": "auto", "threads": 1, "deterministic": False, "pause": 10}
    )
    orders.put(None)
    with pytest.raises(BadFolder):
        work(SimpleNamespace(orders=orders))
