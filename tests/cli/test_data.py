"""``data``: exit codes, one sentence per problem, progress on a terminal."""

import json

import pytest

from undrift.cli import main
from undrift.cli.data import line
from undrift.data import fetch as fetching
from undrift.data.files import BadData


@pytest.fixture
def told(capsys, monkeypatch):
    monkeypatch.delenv("UNDRIFT_DATA", raising=False)

    def ask(*words):
        try:
            code = main(["data", *words])
        except SystemExit as end:
            code = end.code
        return code, *capsys.readouterr()

    return ask


def test_info(told):
    code, out, _ = told("info", "cifar10")
    assert (
        code == 0
        and "CIFAR-10, 50000 + 10000 images of 3 x 32 x 32" in out
        and "cifar-10-binary.tar.gz" in out
    )
    assert len(told("info")[1].splitlines()) > 8
    (card,) = json.loads(told("info", "digits", "--json")[1])
    assert card["shape"] == [1, 8, 8] and sum(card["train"]) == 1437
    code, out, err = told("info", "cifar11")
    assert code == 2 and out == "" and "did you mean cifar10?" in err and err.count("\n") == 1


def test_verify_what_comes_with_the_library(told):
    code, out, _ = told("verify", "digits")
    assert (code, out) == (0, "digits is sound: 1437 + 360 images of 1 x 8 x 8, 10 classes\n")
    assert sum(json.loads(told("verify", "digits", "--json")[1])["test"].values()) == 360


def test_verify_what_is_not_there_or_damaged(told, tmp_path):
    code, _, err = told("verify", "mnist")
    assert code == 2 and "add --folder FOLDER, or set UNDRIFT_DATA" in err
    code, _, err = told("verify", "mnist", "--folder", str(tmp_path))
    assert code == 1 and "mnist is not there: looked for" in err and err.count("\n") == 1
    (tmp_path / "cifar-10-binary.tar.gz").write_bytes(b"not an archive")
    code, out, err = told("verify", "cifar10", "--folder", str(tmp_path))
    assert code == 1 and out == "" and "cannot be read" in err and "Traceback" not in err


def test_a_folder_of_images(told, tmp_path, monkeypatch):
    from PIL import Image

    for part in ("train", "test"):
        for kind in ("cat", "dog"):
            (tmp_path / "pets" / part / kind).mkdir(parents=True)
            Image.new("RGB", (4, 4)).save(tmp_path / "pets" / part / kind / "1.png")
    code, out, _ = told("verify", "pets", "--folder", str(tmp_path))
    assert code == 0 and out == "pets is sound: 2 + 2 images of 3 x 4 x 4, 2 classes\n"
    assert told("verify", "pest", "--folder", str(tmp_path))[0] == 2
    monkeypatch.setenv("UNDRIFT_DATA", str(tmp_path))
    assert [told(what, "pets")[0] for what in ("info", "verify")] == [2, 0]
    assert told("fetch", "pets")[0] == 2


def test_fetch(told, tmp_path, monkeypatch):
    def download(name, folder, *, progress):
        return [folder / "a.gz", folder / "b.gz"]

    monkeypatch.setattr(fetching, "fetch", download)
    code, out, err = told("fetch", "mnist", "--folder", str(tmp_path))
    assert code == 0 and out.splitlines() == [str(tmp_path / "a.gz"), str(tmp_path / "b.gz")]
    assert f"undrift data verify mnist --folder {tmp_path}" in err


def test_fetch_that_cannot_be(told, tmp_path, monkeypatch):
    assert told("fetch", "mnist")[0] == 2
    code, _, err = told("fetch", "digits")
    assert code == 2 and "comes with scikit-learn" in err
    code, _, err = told("fetch")
    assert code == 2 and "name a set: one of digits" in err

    def broken(*args, **kwargs):
        raise BadData("https://x could not be downloaded; try again")

    monkeypatch.setattr(fetching, "fetch", broken)
    code, out, err = told("fetch", "mnist", "--folder", str(tmp_path))
    assert (code, out, err) == (1, "", "https://x could not be downloaded; try again\n")


def test_a_line_shows_how_far_a_download_is(capsys):
    line("a.gz", 25_000_000, 100_000_000)
    line("a.gz", 5000, None)
    out, err = capsys.readouterr()
    assert out == "" and "25 % of 100.0 MB" in err and err.endswith("a.gz  5.0 kB")
