"""A run folder or a pack of somebody else is refused with one sentence, in time and in memory."""

import bz2
import json
import os
import struct
import zipfile
from pathlib import Path

import pytest
from tests.cli.test_bad_input import answer, pytestmark  # noqa: F401
from tests.report.recorded import record

from undrift.records.folder import Folder

DEEP = 100_000
KEY = "a" * 20


def pipe(name):
    def put(folder):
        (folder / name).unlink(missing_ok=True)
        os.mkfifo(folder / name)

    return put


def link(name, target):
    def put(folder):
        (folder / name).unlink(missing_ok=True)
        (folder / name).symlink_to(target)

    return put


def text(name, content):
    return lambda folder: (folder / name).write_text(content)


def forged(folder):
    file = folder / "summary.json"
    found = json.loads(file.read_text())
    found["outcomes"][0]["status"] = "x"
    file.write_text(json.dumps(found))


FOLDERS = {
    "rows without end": (link("metrics.jsonl", "/dev/zero"), "Not a plain file"),
    "rows in a pipe": (pipe("metrics.jsonl"), "Not a plain file"),
    "spec in a pipe": (pipe("spec.toml"), "spec.toml"),
    "a link to a pipe": (lambda f: (pipe("p")(f), link("spec.toml", f / "p")(f)), "spec.toml"),
    "a key of many parts": (text("spec.toml", "a" + ".a" * DEEP + " = 1\n"), "200 dots"),
    "a deep spec": (text("spec.toml", f"a = {'[' * DEEP}{']' * DEEP}\n"), "not TOML"),
    "a spec too deep to walk": (text("spec.toml", f"a = {'[' * 90}{']' * 90}\n"), "deeply"),
    "a large spec": (text("spec.toml", "#" * 2**19), "more than 256 KiB"),
    "a deep summary": (text("summary.json", "[" * DEEP + "]" * DEEP), "cannot be read"),
    "a status that there is not": (forged, "cannot be read"),
}


@pytest.fixture
def folder(place):
    return record(place / "runs" / "known").path


@pytest.mark.parametrize("verb", ["compare", "report", "export", "resume"])
@pytest.mark.parametrize("made", FOLDERS)
def test_a_folder(made, verb, folder, answer):  # noqa: F811
    damage, said = FOLDERS[made]
    damage(folder)
    words = ["FedAvg", "--seed", "0", "-o", "m.safetensors"] if verb == "export" else []
    code, err = answer(verb, str(folder), *words, seconds=20)
    assert code == 2 and "Unexpected" not in err
    assert verb in ("export", "resume") or said in err


@pytest.mark.parametrize("verb", ["compare", "report"])
def test_a_row_with_a_number_that_is_no_float(verb, place, answer):  # noqa: F811
    folder = record(place / "runs" / "known", ended=False, loss=10**400)
    code, err = answer(verb, str(folder.path), seconds=20)
    assert code == 2 and "not a row of metrics" in err and "Unexpected" not in err


@pytest.mark.parametrize(
    "damage",
    [pipe("environment.json"), text("environment.json", '{"a":' * DEEP + "1" + "}" * DEEP)],
)
def test_an_environment_that_cannot_be_read_is_not_known(damage, folder, answer):  # noqa: F811
    damage(folder)
    words = ["FedAvg", "--seed", "0", "-o", "m.safetensors"]
    code, err = answer("export", str(folder), *words, seconds=20)
    assert code == 2 and "Unexpected" not in err
    assert Folder(folder).environment == {}


def member(name: str, content: bytes, method: int = zipfile.ZIP_STORED):
    def make(file: Path):
        with zipfile.ZipFile(file, "w", method) as archive:
            archive.writestr(name, content)

    return make


def swollen(file):
    archive = zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED)
    with archive, archive.open(f"{KEY}/metrics.jsonl", "w", force_zip64=True) as inner:
        for _ in range(10):
            inner.write(bytes(1 << 20))


def changed(place, value, method=zipfile.ZIP_STORED):
    """A pack of which two bytes, ``place`` behind the mark of both of its heads, are others."""

    def make(file):
        member(f"{KEY}/metrics.jsonl", b"{}\n" * 99, method)(file)
        content = bytearray(file.read_bytes())
        for mark, more in ((b"PK\x03\x04", 0), (b"PK\x01\x02", 2)):
            at = content.index(mark) + place + more
            content[at : at + 2] = struct.pack("<H", value)
        file.write_bytes(content)

    return make


def torn(file):
    """LZMA whose stream is damaged."""
    member(f"{KEY}/metrics.jsonl", os.urandom(999), zipfile.ZIP_LZMA)(file)
    content = bytearray(file.read_bytes())
    content[80:400] = bytes(320)
    file.write_bytes(content)


PACKS = {
    "a bomb": (swollen, "more than 100 times its size"),
    "encrypted": (changed(6, 1), "is not a pack of runs"),
    "a compression that there is not": (changed(8, 99), "is not a pack of runs"),
    "damaged": (torn, "is not a pack of runs"),
    "a member without a name": (member(".", b""), "it holds '.'"),
    "a member outside": (member(f"../{KEY}/metrics.jsonl", b""), "it holds"),
    "a folder in a run": (member(f"{KEY}/a/metrics.jsonl", b""), "it holds"),
    "bytes": (lambda file: file.write_bytes(bz2.compress(b"x")), "is not a pack of runs"),
    "a pipe": (os.mkfifo, "is not a pack of runs"),
}


@pytest.mark.parametrize("made", PACKS)
def test_a_pack(made, place, answer):  # noqa: F811
    make, said = PACKS[made]
    make(place / "runs.zip")
    words = ["--kept", "--unpack", "runs.zip", "--out", "kept"]
    code, err = answer("reproduce", "fedcet/figure-1", *words, seconds=20)
    assert code == 2 and said in err and "Unexpected" not in err
    assert len(err.splitlines()) <= 2 and not (place / "kept/runs").exists()
