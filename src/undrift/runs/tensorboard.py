"""Rows in TensorBoard as they are recorded."""

from __future__ import annotations

import math
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from undrift.records.rows import Key
from undrift.runs.events import Emit, Event, Measured

if TYPE_CHECKING:
    from torch.utils.tensorboard.writer import SummaryWriter

LOGGER = "tensorboard"


def missing() -> str:
    """Why there is no TensorBoard; empty if it is installed."""
    if find_spec(LOGGER):
        return ""
    return f"the package {LOGGER} is not installed; pip install 'undrift[{LOGGER}]'"


class TensorBoard:
    """Hears the events of a run before ``emit`` does: ``FOLDER/LABEL/seed-0`` has its rows."""

    def __init__(self, folder: Path, names: Mapping[str, str], emit: Emit):
        self.folder, self.names, self.emit = folder, names, emit
        self.writers: dict[Key, SummaryWriter] = {}

    def hear(self, event: Event) -> None:
        if isinstance(event, Measured):
            writer = self._writer(event)
            for column, value in event.row.items():
                # Rows of other processes come by their files, which have null for such numbers.
                if column != "round" and value is not None and math.isfinite(value):
                    writer.add_scalar(column, value, event.row["round"])
        self.emit(event)

    def close(self) -> None:
        for writer in self.writers.values():
            writer.close()

    def _writer(self, event: Measured) -> SummaryWriter:
        from torch.utils.tensorboard.writer import SummaryWriter

        key = event.label, event.seed
        if key not in self.writers:
            place = self.folder / self.names[event.label] / f"seed-{event.seed}"
            # A run that continues measures again what came after its checkpoint: that is purged.
            first = event.row["round"]
            self.writers[key] = SummaryWriter(str(place), purge_step=first, flush_secs=5)
        return self.writers[key]
