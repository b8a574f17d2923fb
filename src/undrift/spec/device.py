"""Devices, by the names that specs and ``undrift.run`` know."""

from __future__ import annotations

import re
from typing import Annotated

from undrift.core.params import Rule

_NAME = re.compile(r"mps|(cpu|cuda)(:\d+)?")
Device = Annotated[
    str,
    Rule("cpu, cuda, cuda:0 (or another number) or mps", lambda text: bool(_NAME.fullmatch(text))),
]


def absent(device: str) -> str | None:
    """The complaint about a device that this machine lacks."""
    import torch

    kind, _, number = device.partition(":")
    here = {
        "cpu": 1,
        "cuda": torch.cuda.device_count() if torch.cuda.is_available() else 0,
        "mps": int(torch.backends.mps.is_available()),
    }
    if int(number or 0) < here[kind]:
        return None
    return f"device = {device!r} is not on this machine; use 'cpu'"
