"""Where data lie, and reading them with care: bounded reads, checked archives."""

from __future__ import annotations

import bz2
import gzip
import hashlib
import lzma
import os
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from typing import IO, TYPE_CHECKING, cast

if TYPE_CHECKING:
    from scipy.sparse import spmatrix

FOLDER = "UNDRIFT_DATA"
"""The environment variable that names the data folder."""

CACHE = "UNDRIFT_CACHE"
"""The environment variable that names the folder of decoded images."""

SWELL = 100
"""Times its own size that a file may unpack to, beyond the first MiB; real data stay far below."""
LARGEST = 8 << 30
"""Bytes of the largest array that a sparse one may become."""
_UNPACK: dict[str, Callable[..., object]] = {
    ".xz": lzma.open,
    ".bz2": bz2.open,
    ".gz": gzip.open,
}
BROKEN = (
    OSError,
    EOFError,
    KeyError,
    ValueError,
    MemoryError,
    RuntimeError,
    OverflowError,
    zlib.error,
    lzma.LZMAError,
    tarfile.TarError,
    zipfile.BadZipFile,
)


class BadData(ValueError):
    """Data are unknown, missing, damaged or not what they should be; the message has the remedy."""


def brief(error: BaseException) -> str:
    """The first line of an error's message, safe to print."""
    line = str(error).strip().partition("\n")[0] or type(error).__name__
    return "".join(c if c.isprintable() else "?" for c in line)


def data_folder(folder: str | Path | None) -> Path:
    """``folder``, or else ``$UNDRIFT_DATA``."""
    where = folder or os.environ.get(FOLDER)
    if not where:
        raise BadData(f"no data folder is named; give one, or set {FOLDER} to one")
    return Path(where).expanduser()


def existing_folder(folder: str | Path | None) -> Path:
    """The data folder, which must be there."""
    root = data_folder(folder)
    if not root.is_dir():
        raise BadData(
            f"the data folder {root} does not exist; name another, or set {FOLDER} to one"
        )
    return root


def cache_folder() -> Path:
    """``$UNDRIFT_CACHE``, or else ``~/.cache/undrift``."""
    return Path(os.environ.get(CACHE) or "~/.cache/undrift").expanduser()


def digest(path: Path, kind: str = "sha256") -> str:
    with path.open("rb") as file:
        made = hashlib.file_digest(file, lambda: hashlib.new(kind, usedforsecurity=False))
    return made.hexdigest()


@contextmanager
def reading(what: object, remedy: str = "fetch it again") -> Iterator[None]:
    """Turn every error of a broken file into a :class:`BadData` about ``what``."""
    try:
        yield
    except BadData:
        raise
    except BROKEN as error:
        raise BadData(f"{what} cannot be read ({brief(error)}); {remedy}") from error


def unpacking(path: Path) -> IO[bytes]:
    """A file to read from, unpacked if its suffix says that it is compressed."""
    return cast(IO[bytes], _UNPACK.get(path.suffix, open)(path, "rb"))


def allowance(path: Path) -> int:
    """Bytes that a file may unpack to: far more than real data do."""
    return (1 << 20) + SWELL * path.stat().st_size


def swelling(path: Path, size: int) -> None:
    """Refuse a file that unpacks to more, as one made to fill the memory."""
    if size > allowance(path):
        raise BadData(
            f"{path} unpacks to more than {SWELL} times its size; "
            "do not use this file, fetch the official one"
        )


def whole(file: IO[bytes], path: Path) -> bytes:
    """All of an unpacked file, or of a member of ``path``, which may not be large for its size."""
    content = file.read(allowance(path) + 1)
    swelling(path, len(content))
    return content


def dense(name: object, matrix: spmatrix) -> spmatrix:
    """All entries of a matrix of scipy.sparse, refused if they do not fit."""
    rows, width = matrix.shape
    if 8 * rows * width > LARGEST:
        raise ValueError(
            f"{name} has {rows} rows of {width} columns, "
            f"more than {LARGEST >> 30} GiB as a dense array; use a set with fewer columns"
        )
    return matrix.toarray()


def tar_files(path: Path, wanted: Iterable[str]) -> dict[str, bytes]:
    """The wanted files of a tar archive by their last name; nothing is unpacked to disk."""
    missing, found = set(wanted), dict[str, bytes]()
    with reading(path), unpacking(path) as file, tarfile.open(fileobj=file, mode="r:") as archive:
        for member in archive:
            name = PurePosixPath(member.name).name
            if name in missing and (content := archive.extractfile(member)):
                found[name] = whole(content, path)
                missing.remove(name)
        while file.read(1 << 20):  # checksums are compared at the end
            pass
    if missing:
        raise BadData(f"{path} lacks {', '.join(sorted(missing))}; fetch it again")
    return found


@contextmanager
def zip_archive(path: Path) -> Iterator[zipfile.ZipFile]:
    """A zip archive to read from; nothing is unpacked to disk."""
    with reading(path), zipfile.ZipFile(path) as archive:
        swelling(path, sum(entry.file_size for entry in archive.infolist()))
        # Also finds names that were damaged, whose members would go missing without a word.
        if damaged := archive.testzip():
            raise BadData(f"{path}: member {damaged!r} is damaged; fetch it again")
        yield archive
