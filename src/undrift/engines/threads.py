"""Groups of clients that work at the same time, each on one thread."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import torch

Group = TypeVar("Group")
Done = TypeVar("Done")


def each(work: Callable[[Group, Callable[[], bool]], Done], groups: Sequence[Group]) -> list[Done]:
    """``work(group, halted)`` of every group, on as many threads as torch uses.

    A group computes with a single one of them, so that no result depends on how many there are.
    Once ``halted()`` is true nobody waits for it any more.
    """
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        if min(threads, len(groups)) == 1:
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
    finally:
        torch.set_num_threads(threads)
