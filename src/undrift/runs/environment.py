"""Where a run took place: versions and hardware, and nothing that names the user or the machine."""

from __future__ import annotations

import os
import platform
from importlib import metadata
from typing import Any

import undrift

PACKAGES = ("torch", "numpy", "scipy", "scikit-learn", "safetensors")


def environment(device: str = "cpu") -> dict[str, Any]:
    """Versions of what computes, the kind of machine, the device."""
    return {
        "undrift": undrift.__version__,
        "python": platform.python_version(),
        **{name: _version(name) for name in PACKAGES},
        "system": platform.system(),
        "release": platform.release(),
        "machine": platform.machine(),
        "cpus": os.cpu_count(),
        "device": _device(device),
    }


def deterministic() -> None:
    """From here on a run gives the same bits whenever it is repeated on one device; what cannot is
    refused by torch.
    """
    os.environ.setdefault(
        "CUBLAS_WORKSPACE_CONFIG", ":4096:8"
    )  # cuBLAS reads it when it is first used
    import torch

    torch.use_deterministic_algorithms(True)


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def _device(device: str) -> str:
    if not device.startswith("cuda"):
        return device
    import torch

    return f"{device}: {torch.cuda.get_device_name(device)}"
