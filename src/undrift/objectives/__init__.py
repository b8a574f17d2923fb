r"""Every local loss, one file each: a new file here is found by itself.

Docstrings write :math:`s_j` for the local model's logits of sample j, :math:`y_j` for its label,
:math:`w_j` for its weight (1/n in a batch of n), and CE for the cross-entropy of a batch.
"""

from importlib import import_module
from pkgutil import iter_modules

from undrift.core.params import fold, no_attribute
from undrift.objectives.base import Batch, Network, Objective, Others, needed, registry

for _module in iter_modules(__path__):
    import_module(f"{__name__}.{_module.name}")

__all__ = ["Batch", "Network", "Objective", "Others", "needed", "registry", *sorted(registry)]


def __getattr__(name: str) -> type[Objective]:
    if name in registry:
        return registry[name]
    raise no_attribute(__name__, name, __all__)


def find(name: str) -> type[Objective] | None:
    """The objective called ``name``, however it is written."""
    return {fold(known): objective for known, objective in registry.items()}.get(fold(name))
