"""Work on several threads whose results do not depend on how many they are."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import TypeVar

import torch
from torch import Tensor

FEW = 1 << 18
"""Numbers that one thread has gone through before another is awake."""
_AS_IT_IS = nullcontext()
Group = TypeVar("Group")
Done = TypeVar("Done")


def cores() -> int:
    """Those that this process may use, which torch does not ask for."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


@contextmanager
def one_thread() -> Iterator[None]:
    """torch computes on one thread: the order of a sum does not depend on how many there are."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


def one_for_few(v: Tensor) -> AbstractContextManager[None]:
    """One thread for a pass through a tensor of few numbers."""
    return one_thread() if torch.get_num_threads() > 1 and v.numel() < FEW else _AS_IT_IS


def each(
    work: Callable[[Group, Callable[[], bool]], Done],
    groups: Sequence[Group],
    threads: int | None = None,
) -> list[Done]:
    """``work(group, halted)`` of every group, on ``threads`` (as many as torch uses when ``None``).

    A group computes with a single one of them, so that no result depends on how many there are.
    Once ``halted()`` is true nobody waits for it any more.
    """
    threads = torch.get_num_threads() if threads is None else threads
    with one_thread():
        if min(threads, len(groups)) <= 1:
            return [work(group, lambda: False) for group in groups]
        halt = threading.Event()
        with ThreadPoolExecutor(threads, initializer=torch.set_num_threads, initargs=(1,)) as pool:
            try:
                tasks = [pool.submit(work, group, halt.is_set) for group in groups]
                return [task.result() for task in tasks]
            except BaseException:
                halt.set()
                pool.shutdown(wait=False, cancel_futures=True)
                raise
