"""Files and folders on systems that lack a call: the missing ones are faked."""

import errno
import os
import stat
import sys
from types import SimpleNamespace

import pytest

from undrift import _files as files
from undrift._files import hold, release, sync, writing
from undrift.records.folder import BadFolder, Folder


def written(path):
    with writing(path) as file:
        file.write(b"whole")
    return path.read_bytes() == b"whole" and [p.name for p in path.parent.iterdir()] == [path.name]


def test_a_folder_that_cannot_be_opened_is_written_to_all_the_same(tmp_path, monkeypatch):
    """Windows opens no folder; the file was there, and the error came after."""
    real = os.open

    def windows(path, *rest):
        if os.path.isdir(path):
            raise PermissionError(errno.EACCES, "Permission denied", str(path))
        return real(path, *rest)

    monkeypatch.setattr("os.open", windows)
    assert written(tmp_path / "a.json")


@pytest.mark.parametrize(("code", "fails"), [(errno.EINVAL, False), (errno.ENOSPC, True)])
def test_a_folder_that_cannot_be_synced(tmp_path, monkeypatch, code, fails):
    real = os.fsync

    def fsync(file):
        if stat.S_ISDIR(os.fstat(file).st_mode):
            raise OSError(code, os.strerror(code))
        real(file)

    monkeypatch.setattr("os.fsync", fsync)
    if not fails:
        assert written(tmp_path / "a.json")
        return
    with pytest.raises(OSError, match=os.strerror(code)):
        written(tmp_path / "a.json")


def test_on_macos_what_is_written_leaves_the_memory_of_the_drive(tmp_path, monkeypatch):
    asked, plain = [], []
    mac = SimpleNamespace(F_FULLFSYNC=51, fcntl=lambda file, what: asked.append(what))
    monkeypatch.setattr(files, "fcntl", mac)
    monkeypatch.setattr("os.fsync", plain.append)
    sync(7)
    assert asked == [51] and plain == []

    def unknown(file, what):
        raise OSError(errno.ENOTSUP, "Operation not supported")

    monkeypatch.setattr(mac, "fcntl", unknown)
    sync(7)
    assert plain == [7]


@pytest.fixture
def windows(monkeypatch):
    """No fcntl, but msvcrt, whose locks end with the file."""
    fcntl = pytest.importorskip("fcntl")

    def locking(file, mode, size):
        assert (mode, size) == (2, 1)
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise PermissionError(errno.EACCES, "Permission denied") from None

    monkeypatch.setattr(files, "fcntl", None)
    monkeypatch.setitem(sys.modules, "fcntl", None)
    monkeypatch.setitem(sys.modules, "msvcrt", SimpleNamespace(LK_NBLCK=2, locking=locking))


def test_one_process_at_a_time_on_windows_too(tmp_path, windows):
    held = hold(tmp_path)
    with pytest.raises(BlockingIOError):
        hold(tmp_path)
    release(tmp_path, held)
    assert list(tmp_path.iterdir()) == []
    release(tmp_path, hold(tmp_path))
    one, other = Folder(tmp_path), Folder(tmp_path)
    one.lock()
    with pytest.raises(BadFolder, match="in use"):
        other.lock()
    one.close()
    other.lock()
    other.close()
