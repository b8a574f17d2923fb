"""Networks. Names load their modules on first use: naming a network needs no torch."""

import lazy_loader as lazy

__getattr__, __dir__, __all__ = lazy.attach_stub(__name__, __file__)
