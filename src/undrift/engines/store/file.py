"""Client vectors in a file without a name, which goes with the process."""

from __future__ import annotations

import errno
import mmap
import os
import tempfile

import numpy as np
from torch import Tensor

from undrift.engines.store.outside import OutsideStore


class FileStore(OutsideStore):
    """Rows in a file in ``folder``; the system reads the next cohort's ahead."""

    def __init__(self, start: dict[str, Tensor], clients: int, folder: str):
        size = len(start) * clients * next(iter(start.values())).nbytes
        self._file, self._folder = tempfile.TemporaryFile(dir=folder), folder  # noqa: SIM115
        self._file.truncate(size)
        self._buffer = mmap.mmap(self._file.fileno(), size)
        super().__init__(start, clients, self._buffer)

    def _prepare(self, members: np.ndarray) -> None:
        if not hasattr(mmap, "MADV_WILLNEED"):  # Windows
            return
        for name, written in self._written.items():
            for i in members[written[members]]:
                place, size = self._place(name, i)
                before = place % mmap.PAGESIZE
                self._buffer.madvise(mmap.MADV_WILLNEED, place - before, size + before)

    def _claim(self, name: str, client: int) -> None:
        """Reserve room on disk first: without it the process would die of a signal."""
        if not self._written[name][client]:
            try:
                _reserve(self._file.fileno(), *self._place(name, client))
            except OSError as error:
                error.filename = self._folder
                raise
        super()._claim(name, client)

    def _place(self, name: str, client: int) -> tuple[int, int]:
        """Where a row begins in the file, and its bytes."""
        first = self._all[name][client].data_ptr() - self._block.data_ptr()
        return first, self._start[name].nbytes


def _reserve(file: int, start: int, size: int) -> None:
    """Room on disk for a part of a file that nobody has written to yet."""
    if hasattr(os, "posix_fallocate"):
        try:
            os.posix_fallocate(file, start, size)
            return
        except OSError as error:  # not every file system has it
            if error.errno not in (errno.EINVAL, errno.EOPNOTSUPP):
                raise
    if hasattr(os, "pwrite"):  # Windows lacks it, and reserves the whole file when it is made
        zeros, end = bytes(min(size, 2**20)), start + size
        while start < end:
            start += os.pwrite(file, zeros[: end - start], start)
