"""Jobs as tasks of Ray, which has no executor of its own."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Executor, Future
from importlib import import_module
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
Answer = TypeVar("Answer")


class RayExecutor(Executor):
    """Runs calls as tasks of Ray: ``ud.run_spec("spec.toml", save=folder, jobs=ud.RayExecutor())``.

    In the cluster that ``ray.init`` has joined, else in one that begins here on this machine. Ray
    begins a task again whose process has died; a job then continues from its last checkpoint.

    Args:
        **options: of every task, as ``num_cpus=2`` or ``num_gpus=0.5``; left out: one CPU.
    """

    def __init__(self, **options: object) -> None:
        try:
            self.ray = import_module("ray")
        except ImportError:
            raise ImportError("RayExecutor needs Ray: pip install 'undrift[ray]'") from None
        if not self.ray.is_initialized():
            self.ray.init()
        self.options = options

    def submit(
        self, call: Callable[P, Answer], /, *given: P.args, **named: P.kwargs
    ) -> Future[Answer]:
        task = self.ray.remote(call).options(**self.options)
        found: Future[Answer] = task.remote(*given, **named).future()
        return found
