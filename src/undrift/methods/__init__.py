r"""Every method, one file each: a new file here is found by itself.

Docstrings write :math:`x` for the server's point, :math:`y` for a local iterate, :math:`g_i(y)` for
the gradient of client i on the mini-batch of a local step (on all its data where there are none),
:math:`\nabla f_i` for its exact gradient, :math:`K` for the local steps of a round,
:math:`S` for the cohort, :math:`N` for the number of clients, and mean_S for a mean over a cohort.
"""

from importlib import import_module
from pkgutil import iter_modules

from undrift.core import Method
from undrift.core import registry as registry
from undrift.core.params import fold, no_attribute

for _module in iter_modules(__path__):
    if not _module.name.startswith("_"):
        import_module(f"{__name__}.{_module.name}")

__all__ = sorted(registry)


def __getattr__(name: str) -> type[Method]:
    if name in registry:
        return registry[name]
    raise no_attribute(__name__, name, __all__)


def find(name: str) -> type[Method] | None:
    """The method called ``name``, however it is written."""
    if name in registry:
        return registry[name]
    return {fold(known): method for known, method in registry.items()}.get(fold(name))
