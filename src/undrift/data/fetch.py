"""Official archives from their official places, kept only if their hash is right."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from http.client import HTTPException
from pathlib import Path
from urllib.parse import urlsplit
from urllib.request import Request, urlopen

from undrift._files import writing
from undrift.data.cards import info
from undrift.data.files import BadData, brief, data_folder, digest

Progress = Callable[[str, int, int | None], None]
"""Called with the file, the bytes so far, and the total where it is known."""

_CHUNK = 1 << 18


def fetch(
    name: str,
    folder: str | Path | None = None,
    *,
    base: str | None = None,
    progress: Progress | None = None,
    timeout: float = 30.0,
) -> list[Path]:
    """Download the files of an image set into ``folder`` (default: ``$UNDRIFT_DATA``).

    Returns their paths. Files that are there with the right hash are not downloaded again; a failed
    download changes nothing. ``base`` is another address to take the files from; ``timeout`` is for
    each answer of the server.
    """
    card = info(name)
    if not card.files:
        raise ValueError(f"{name} needs no download: it comes with scikit-learn")
    root, base = data_folder(folder), base or card.base
    if urlsplit(base).scheme not in ("http", "https"):
        raise ValueError(f"{base!r} is not a web address; it must start with https:// or http://")
    paths = [root / file for file in card.files]
    for path, md5 in zip(paths, card.files.values(), strict=True):
        if not (path.is_file() and digest(path, "md5") == md5):
            _download(f"{base.rstrip('/')}/{path.name}", path, md5, progress, timeout)
    return paths


def _download(url: str, path: Path, md5: str, progress: Progress | None, timeout: float) -> None:
    total, done = hashlib.md5(usedforsecurity=False), 0
    request = Request(url, headers={"User-Agent": "undrift"})
    try:
        with writing(path) as file, urlopen(request, timeout=timeout) as answer:
            length = answer.headers.get("Content-Length", "")
            size = int(length) if length.isdecimal() else None
            while chunk := answer.read(_CHUNK):
                file.write(chunk)
                total.update(chunk)
                done += len(chunk)
                if progress:
                    progress(path.name, done, size)
            if total.hexdigest() != md5:
                raise BadData(
                    f"{url} gave {done} bytes with MD5 {total.hexdigest()}, but the official file "
                    f"has {md5}; it was not kept; try again or another address"
                )
    except (OSError, HTTPException) as error:
        raise BadData(
            f"{url} could not be downloaded ({brief(error)}); try again or put the file at {path}"
        ) from error
