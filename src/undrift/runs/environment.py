"""Where a run took place: versions and hardware, and nothing that names the user or the machine."""

from __future__ import annotations

import os
import platform
from importlib import metadata

import undrift

PACKAGES = ("torch", "numpy", "scipy", "scikit-learn", "safetensors")


def environment(device: str = "cpu") -> dict[str, object]:
    """Versions of what computes, the kind of machine, the device."""
    found: dict[str, object] = {
        "undrift": undrift.__version__,
        "python": platform.python_version(),
        "system": platform.system(),
        "release": platform.release(),
        "machine": platform.machine(),
        "cpus": os.cpu_count(),
        "device": device,
    }
    for name in PACKAGES:
        found[name] = metadata.version(name)
    if device.startswith("cuda"):
        import torch

        found["device"] = f"{device}: {torch.cuda.get_device_name(device)}"
    return found


def deterministic() -> None:
    """Make runs give the same bits whenever they are repeated on one device, or fail in torch."""
    # cuBLAS reads this when it is first used.
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    import torch

    torch.use_deterministic_algorithms(True)
