"""Packages whose names load on first use. Their stub (``__init__.pyi``) lists the names."""

from __future__ import annotations

from collections.abc import Callable

from lazy_loader import attach_stub


def attach(
    package: str, file: str
) -> tuple[Callable[[str], object], Callable[[], list[str]], list[str]]:
    """``__getattr__``, ``__dir__`` and ``__all__`` of a package with a stub beside its file."""
    load, listed, names = attach_stub(package, file)

    def find(name: str) -> object:
        if name in names:
            return load(name)
        from undrift.core.params import no_attribute

        raise no_attribute(package, name, names)

    return find, listed, names
