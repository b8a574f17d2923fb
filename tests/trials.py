"""A trial of an engine that is there already."""

from types import SimpleNamespace

from undrift.runs.events import LeftOut, Measured
from undrift.runs.trial import Trial


def trial(engine, rounds, every=1, watch=None, leave_out=None, **more) -> Trial:
    """Rows go to ``watch``, whose work did not count to ``leave_out``."""

    def hear(event):
        if isinstance(event, Measured) and watch:
            watch(event.row)
        if isinstance(event, LeftOut) and leave_out:
            leave_out(event.rejections)

    task = SimpleNamespace(
        label="one",
        method=engine.method,
        written=engine.method,
        problem=engine.problem,
        rounds=rounds,
        every=every,
        per_client=False,
        engine=lambda draws: engine,
    )
    task.settled = task
    return Trial(task, 0, 0, emit=hear, **more)
