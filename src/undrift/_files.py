"""Files that appear whole or not at all, files of others, and folders that one process has to
itself.
"""

from __future__ import annotations

import errno
import json
import math
import os
import secrets
import stat
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from importlib import import_module
from pathlib import Path
from typing import IO, Any, BinaryIO

try:
    fcntl: Any = import_module("fcntl")
except ImportError:  # Windows
    fcntl = None

LOCK = ".lock"
"""The file that is locked where a folder itself cannot be."""
DIGITS = 20
"""Of a whole number in JSON; longer ones are no floats."""
DEPTH = 64
"""Tables and lists within one another, in files of others."""
_NOT_THERE = (errno.EINVAL, errno.ENOTSUP, errno.EBADF)
"""Errors of a file system that cannot sync a folder."""


@contextmanager
def writing(path: Path) -> Iterator[IO[bytes]]:
    """A file that becomes ``path`` when the block ends well, and disappears when it does not."""
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f".{path.name}.{secrets.token_hex(4)}.part")
    try:
        with naming(path), part.open("xb") as file:
            yield file
            file.flush()
            sync(file.fileno())
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)
    _sync_names(path.parent)


def write_whole(path: Path, content: str | bytes) -> None:
    """Replace a whole file at once: no reader ever sees a part of it."""
    with writing(path) as file:
        file.write(content.encode() if isinstance(content, str) else content)


@contextmanager
def naming(path: Path) -> Iterator[None]:
    """An error about a file says which one."""
    try:
        yield
    except OSError as error:
        if error.errno and not error.filename:
            error.filename = str(path)
        raise


@contextmanager
def opened(path: Path) -> Iterator[BinaryIO]:
    """A plain file to read from; ``OSError`` for a pipe or a device, which may never end."""
    # Opening a pipe would wait for its other end; Windows would change the ends of lines.
    calm = getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)
    with open(os.open(path, os.O_RDONLY | calm), "rb") as file:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            raise OSError(errno.EINVAL, "Not a plain file", str(path))
        yield file


def read_plain(path: Path, most: int) -> bytes:
    """All of a plain file; ``OSError`` if it has more than ``most`` bytes."""
    with opened(path) as file:
        content = file.read(min(most, os.fstat(file.fileno()).st_size) + 1)
    if len(content) > most:
        raise OSError(errno.EFBIG, f"It has more than {most >> 10} KiB", str(path))
    return content


def read_json(text: bytes) -> Any:
    """What a JSON text has; ``ValueError`` if it is none, or nested beyond what we write."""
    try:
        return shallow(_JSON.decode(text.decode()))
    except RecursionError:
        raise ValueError("nested too deeply") from None


def finite(value: object) -> object:
    """The same for JSON, which has no NaN and no infinity: those become null, at any depth."""
    if isinstance(value, Mapping):
        return {key: finite(inside) for key, inside in value.items()}
    if isinstance(value, list | tuple):
        return [*map(finite, value)]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def shallow(found: Any) -> Any:
    """``found`` itself; ``ValueError`` if its tables and lists are nested too deeply."""
    level = [found]
    for _ in range(DEPTH):
        below = list[Any]()
        for one in level:
            if isinstance(one, dict | list):
                below += one.values() if isinstance(one, dict) else one
        if not below:
            return found
        level = below
    raise ValueError("nested too deeply")


def _whole(digits: str) -> int:
    if len(digits) > DIGITS:
        raise ValueError(f"a number of {len(digits)} digits")
    return int(digits)


_JSON = json.JSONDecoder(parse_int=_whole)


def sync(file: int) -> None:
    """Make what was written to an open file survive a crash of the machine.

    On macOS fsync leaves data in the drive's memory; only F_FULLFSYNC, where the drive has it,
    does not.
    """
    if hasattr(fcntl, "F_FULLFSYNC"):
        with suppress(OSError):
            fcntl.fcntl(file, fcntl.F_FULLFSYNC)
            return
    os.fsync(file)


def hold(folder: Path) -> int:
    """Lock ``folder`` until the descriptor is given to :func:`release`, or the process ends.

    Raises ``BlockingIOError`` if another process holds it. Some file systems have no locks: there
    nothing is locked, and a warning says so.
    """
    held = os.open(
        folder if fcntl else folder / LOCK, os.O_RDONLY if fcntl else os.O_RDWR | os.O_CREAT
    )
    try:
        if fcntl:
            fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
        else:
            _lock_byte(held)
    except BlockingIOError:
        os.close(held)
        raise
    except OSError:
        text = f"{folder} is on a file system without locks: let no other process run into it"
        warnings.warn(text, stacklevel=2)
    return held


def release(folder: Path, held: int) -> None:
    """Unlock ``folder``."""
    os.close(held)
    if not fcntl:
        with suppress(OSError):  # a file that somebody has open cannot be removed on Windows
            (folder / LOCK).unlink()


def _lock_byte(file: int) -> None:
    """A lock that Windows keeps until the file is closed or the process ends."""
    msvcrt: Any = import_module("msvcrt")
    try:
        msvcrt.locking(file, msvcrt.LK_NBLCK, 1)
    except OSError as error:
        if error.errno in (errno.EACCES, errno.EDEADLK):
            raise BlockingIOError(errno.EAGAIN, "in use") from None
        raise


def _sync_names(folder: Path) -> None:
    """Make the names in a folder survive a crash too; Windows can open no folder, and need not."""
    try:
        opened = os.open(folder, os.O_RDONLY)
    except PermissionError:
        return
    try:
        sync(opened)
    except OSError as error:
        if error.errno not in _NOT_THERE:
            raise
    finally:
        os.close(opened)


def drawn_once(path: Path, size: int = 8) -> str:
    """A number that is drawn once and kept in a file for this user alone, as a node's name is."""
    if not path.exists():
        with writing(path) as file:
            os.fchmod(file.fileno(), 0o600)
            file.write(secrets.token_hex(size).encode())
    return path.read_text(encoding="utf-8").strip()
