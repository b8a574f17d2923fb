"""Bad input, one row each: a sentence, the stated exit code, in seconds, and nothing is written."""

import io
import json
import lzma
import os
import signal
import warnings
import zipfile
from contextlib import nullcontext
from pathlib import Path

import numpy as np
import pytest
from tests.cli.conftest import SPEC
from tests.data.image_files import write_folder, write_pack
from tests.watching import watching

import undrift as ud
from undrift.cli import main
from undrift.problems.named import RandomQuadratic
from undrift.records.folder import Folder

pytestmark = pytest.mark.skipif(
    not hasattr(signal, "SIGALRM"), reason="nothing ends what hangs here"
)
DIGITS = "1" + "0" * 400
OWN = '\n[[method]]\nfile = "own.py"\nname = "Own"\nlr = 0.02\n'
FEDAVG = "from undrift.methods.fedavg import FedAvg\n\n\nclass Own(FedAvg):\n"


class Hangs(BaseException):
    """Which nothing takes for an error of the input."""


@pytest.fixture
def answer(place, capfd):
    """(code, standard error) of a command that must end within some seconds."""

    def late(*_):
        raise Hangs

    def ask(*words, seconds=30):
        before = signal.signal(signal.SIGALRM, late)
        signal.alarm(seconds)
        try:
            code = main(words)
        except SystemExit as end:
            code = end.code
        finally:
            signal.alarm(0)
            signal.signal(signal.SIGALRM, before)
        out, err = capfd.readouterr()
        assert "Traceback" not in err and out == ""
        return code, err

    return ask


def flags(*changes):
    return lambda place: [word for change in changes for word in ("-s", change)]


def spec(text):
    def make(place):
        (place / "spec.toml").write_text(text, encoding="utf-8")
        return []

    return make


def own(body, head=""):
    def make(place):
        (place / "own.py").write_text(f"{head}{FEDAVG}    {body}\n", encoding="utf-8")
        return spec(SPEC + OWN)(place)

    return make


def images(name, make):
    """Flags for a problem whose images ``make`` lays into the folder."""
    network = 'name = "mine"\nrounds = 1\n[problem]\nname = "images"\n'
    network += '[[method]]\nname = "FedAvg"\nlr = 0.1\n'

    def lay(place):
        make(place)
        spec(network)(place)
        return flags(
            f"problem.data={name}", f"problem.folder={json.dumps(str(place))}", "problem.clients=1"
        )(place)

    return lay


def fifo(place):
    write_folder(place / "mine")
    os.mkfifo(place / "mine/train/ant/c.png")


def swollen(place):
    """64 MB of zeros in about a kilobyte."""
    out = io.BytesIO()
    one = np.zeros(1, np.uint8)
    np.savez_compressed(
        out, jpeg=np.zeros(64 << 20, np.uint8), offset=one, label=one, split=one, classes=one
    )
    (place / "cifar10.npz.xz").write_bytes(lzma.compress(out.getvalue()))


def lying(place):
    """A header that announces 80 TB."""
    write_pack(place)
    content = io.BytesIO(lzma.decompress((place / "cifar10.npz.xz").read_bytes()))
    head = io.BytesIO()
    np.lib.format.write_array_header_1_0(
        head, {"descr": "<i8", "fortran_order": False, "shape": (10**13,)}
    )
    out = io.BytesIO()
    with zipfile.ZipFile(content) as old, zipfile.ZipFile(out, "w") as new:
        for name in old.namelist():
            new.writestr(name, head.getvalue() if name == "label.npy" else old.read(name))
    (place / "cifar10.npz.xz").write_bytes(lzma.compress(out.getvalue()))


ROWS = {
    "decay to nothing": (
        flags("schedule=0.1", "rounds=400"),
        "the factor on lr in round 399 is 0.0",
    ),
    "a seed of 400 digits": (flags(f"seed={DIGITS}"), "at most 9223372036854775807"),
    "a label of hexadecimal digits": (
        spec(SPEC.replace('"SCAFFOLD"', "0x" + "f" * 9000)),
        "thousands of digits",
    ),
    "brackets without end": (spec(SPEC + "x = " + "[" * 9999), "not TOML"),
    "a key of 100,000 parts": (spec(SPEC + "a." * 99999 + "a = 1"), "more than 200 dots"),
    "1.5 million keys": (
        spec(SPEC + "".join(f"k{i} = 1\n" for i in range(1_500_000))),
        "more than 256 KiB",
    ),
    "a large quadratic": (flags("problem.dim=300000"), "allocate"),
    "10 ** 13 clients": (flags("problem.clients=10000000000000"), "allocate"),
    "own file that exits": (own("pass", "import sys\nsys.exit(0)\n"), "own.py:2: SystemExit: 0"),
    "a FIFO among images": (images("mine", fifo), "c.png is not a readable"),
    "a pack that swells": (images("cifar10", swollen), "cifar10.npz.xz"),
    "a pack that lies": (images("cifar10", lying), "cifar10.npz.xz cannot be read"),
    "classes that are no list": (
        images("cifar10", lambda p: write_pack(p, classes=np.array("ape"))),
        "classes",
    ),
}


@pytest.mark.parametrize("what", ROWS)
def test_it_is_told_in_a_sentence_and_nothing_is_written(what, place, answer):
    make, words = ROWS[what]
    changes = make(place)
    before = sorted(place.rglob("*"))
    code, err = answer("run", "spec.toml", *changes)
    assert code == 2 and words in err, err
    assert all(len(line) < 1000 for line in err.splitlines() if "allowed:" not in line)
    assert sorted(place.rglob("*")) == before


@pytest.mark.skipif(not Path("/dev/zero").exists(), reason="no such device")
def test_a_spec_without_end(answer):
    code, err = answer("run", "/dev/zero")
    assert code == 2 and "plain file" in err


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"rounds": 400, "schedule": 0.1}, "the factor on lr in round 399"),
        ({"rounds": 200, "schedule": 0.5, "dtype": "float32"}, r"below 1\.18e-38"),
        ({"rounds": 2, "schedule": 0.0}, r"schedule = 0\.0 is not allowed"),
        ({"rounds": 2, "dim": 10**400}, "at most 9223372036854775807"),
        ({"rounds": 200, "schedule": 0.5}, ""),
    ],
)
def test_what_python_is_given_is_refused_before_anything_runs(given, words):
    rounds = []
    with pytest.raises(ValueError, match=words) if words else nullcontext():
        ud.run(ud.FedAvg(lr=0.01), "quadratic", **given, callbacks=watching(rounds.append))
    assert len(rounds) == (0 if words else 201)


def test_a_batch_larger_than_all_data_means_all(place, capfd):
    for flag, out in (
        ("batch=10000000000", "large"),
        ("batch=50", "all"),
    ):  # a client has 50 samples
        words = ["run", "spec.toml", "-s", "problem.name=least-squares", "-s", flag, "--out", out]
        assert main(words) == 0
    rows = [Folder(place / out / "mine").rows() for out in ("large", "all")]
    assert [row["loss"] for row in rows[0]] == [row["loss"] for row in rows[1]]


@pytest.mark.parametrize(
    ("error", "code"), [(MemoryError, 2), (OverflowError, 2), (RecursionError, 1)]
)
def test_a_problem_that_cannot_be_built(place, answer, monkeypatch, error, code):
    """What is too large is the spec's, what goes round in circles is not."""

    def build(self, objective=None):
        raise error

    monkeypatch.setattr(RandomQuadratic, "build", build)
    found, err = answer("run", "spec.toml")
    assert found == code and not (place / "runs").exists()
    assert ("spec.toml:4: " in err) == (code == 2)
    assert ("Unexpected RecursionError" in err and "spec.toml" not in err) == (code == 1)


def test_ctrl_c_while_a_problem_is_built_is_no_complaint(place, answer, monkeypatch):
    def build(self, objective=None):
        raise KeyboardInterrupt

    monkeypatch.setattr(RandomQuadratic, "build", build)
    found, err = answer("run", "spec.toml")
    assert found == 130 and err.endswith("Interrupted.\n") and "spec.toml" not in err


def test_an_error_that_nobody_foresaw_is_one_line(place, answer, monkeypatch):
    def main_of_show(args):
        raise TypeError("one thing\nand another")

    monkeypatch.setattr("undrift.cli.show.main", main_of_show)
    code, err = answer("show", "FedAvg")
    assert code == 1 and err.count("\n") == 1
    assert "TypeError" in err and "test_bad_input.py" in err and "one thing and another" in err
    monkeypatch.setenv("UNDRIFT_DEBUG", "1")
    with pytest.raises(TypeError):
        main(["show", "FedAvg"])


def test_one_in_mid_run_is_kept_in_the_log_and_the_run_goes_on_later(place, answer, monkeypatch):
    from undrift.methods import Scaffold

    def work(self, me, got, f):
        raise TypeError("broken")

    with monkeypatch.context() as broken:
        broken.setattr(Scaffold, "work", work)
        code, err = answer("run", "spec.toml")
    assert code == 1 and "Unexpected TypeError" in err and "undrift resume runs/mine" in err
    log = (place / "runs/mine/log.txt").read_text(encoding="utf-8")
    assert "Traceback" in log and "TypeError: broken" in log
    assert main(["resume", "mine"]) == 0
    assert [o.status for o in Folder(place / "runs/mine").outcomes()] == ["done", "done"]


def test_letters_that_the_output_cannot_hold(place, monkeypatch, capfd):
    narrow = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
    monkeypatch.setattr("sys.stdout", narrow)
    assert main(["tables"]) == 0
    narrow.flush()
    assert b"\\u03c4" in narrow.buffer.getvalue()


def test_a_file_of_runs_that_is_not_there_is_bad_input(answer):
    code, err = answer("reproduce", "--unpack", "nosuch.zip", "--out", "kept")
    assert code == 2 and "nosuch.zip" in err and not Path("kept").exists()


@pytest.mark.parametrize(
    "words",
    [["run", "s.toml"], ["demo"], ["reproduce", "fedcet/figure-1", "--quick"]],
    ids=lambda words: words[0],
)
def test_a_folder_below_a_file_is_refused_before_anything_is_run(answer, place, words):
    (place / "s.toml").write_text(SPEC)
    code, err = answer(*words, "--out", "s.toml/runs")
    assert code == 2 and "s.toml/runs" in err
    assert "Not a directory" in err


def test_a_node_without_a_key_and_a_folder_in_use_are_bad_input(answer, place):
    pytest.importorskip("flwr", reason="flwr is not installed: pip install undrift[flower]")
    code, err = answer("join", "--superlink", "10.0.0.5:8000", "--part", "0")
    assert code == 2 and "--key FILE" in err
    waiting = Folder(place / "runs" / "mine")
    (waiting.path / "nodes").mkdir(parents=True)
    waiting.lock()
    code, err = answer("federate", "spec.toml", "--local", "2")
    waiting.close()
    assert code == 2 and "in use" in err


def test_warnings_are_one_line(capsys, monkeypatch):
    monkeypatch.setattr("warnings.formatwarning", warnings.formatwarning)
    assert main(["list", "problems"]) == 0
    assert warnings.formatwarning("beware", UserWarning, "file.py", 3) == "warning: beware\n"
