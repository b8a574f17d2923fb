"""Devices, by the names that specs and ``undrift.run`` know."""

from __future__ import annotations

import re

DEVICE = re.compile(r"mps|(cpu|cuda)(:\d+)?")


def misspelt(device: str) -> str | None:
    """The complaint about a name that no device has."""
    if DEVICE.fullmatch(device):
        return None
    return f"device = {device!r} is not allowed: cpu, cuda, cuda:0 (or another number) or mps"


def absent(device: str) -> str | None:
    """The complaint about a device that this machine lacks."""
    import torch

    kind, _, number = device.partition(":")
    here = {
        "cpu": 1,
        "cuda": torch.cuda.device_count() if torch.cuda.is_available() else 0,
        "mps": int(torch.backends.mps.is_available()),
    }
    return (
        None
        if int(number or 0) < here[kind]
        else f"device = {device!r} is not on this machine; use 'cpu'"
    )
