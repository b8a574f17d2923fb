"""A cohort in groups that work at the same time, each on one thread."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from typing import Any, TypeVar

import torch

Group = TypeVar("Group")
Done = TypeVar("Done")


class Halted(Exception):
    """The work of a group is no longer wanted: another one failed, or the run was interrupted."""


def grouped(work: Callable, size: int) -> Callable:
    """``work`` of a phase, so many clients at a time; ``f`` in the end knows what all of them did."""

    def all_of_them(me: Any, got: Any, f: Any) -> tuple[Any, Any]:
        @torch.no_grad()
        def part(rows: slice, halted: Callable[[], bool]) -> tuple[Any, Any, Any]:
            own = f.part(rows, halted)
            mine, up = work(me.map(lambda v: v[rows]), got, own)
            return mine.map(own.rows), up.map(own.rows), own

        count = -(-f.cohort.size // size)
        bounds = [f.cohort.size * k // count for k in range(count + 1)]
        done = each(part, [slice(*bound) for bound in pairwise(bounds)])
        f.join([own for *_, own in done])
        (mine, up, _), *rest = done
        return mine.map(_cat, *(r[0] for r in rest)), up.map(_cat, *(r[1] for r in rest))

    return all_of_them


def each(work: Callable[[Group, Callable[[], bool]], Done], groups: Sequence[Group]) -> list[Done]:
    """``work(group, halted)`` of every group, on as many threads as torch was told to use.

    A group computes with a single one of them, so that no result depends on how many there are.
    Once ``halted()`` is
    true nobody waits for it any more.
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


def _cat(*rows: Any) -> Any:
    return torch.cat(rows) if len(rows) > 1 else rows[0]
