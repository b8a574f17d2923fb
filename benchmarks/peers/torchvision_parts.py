"""torchvision's published wheel is made for PyTorch with CUDA; beside a PyTorch without, importing
it fails.
"""

import sys

import torch


def import_torchvision() -> None:
    """Import it all the same: two operators are declared in place of its compiled ones, and nothing
    here calls them.
    """
    try:
        import torchvision
    except RuntimeError:
        for name in [name for name in sys.modules if name.split(".")[0] == "torchvision"]:
            del sys.modules[name]
        for operator in ("nms", "qnms"):
            torch.library.define(
                f"torchvision::{operator}", "(Tensor boxes, Tensor scores, float limit) -> Tensor"
            )
        import torchvision  # noqa: F401
