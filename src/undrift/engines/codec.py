"""Messages as bytes: safetensors, checked against the receiver's own declaration.

A ``Sparse`` vector ``g`` is sent as ``g.places`` and ``g.values``, its non-zero entries in
ascending order, where that takes fewer bytes than all of them; otherwise as any other vector.
Zeros have no sign then.
"""

from __future__ import annotations

import torch
from safetensors import SafetensorError
from safetensors.torch import load, save
from torch import Tensor

from undrift.core.struct import Message


class BadFrame(ValueError):
    """Bytes that are not the declared message."""


def header(kind: type[Message]) -> int:
    """The most bytes that a frame has beside its numbers: 16, and 96 for each of its tensors."""
    return 16 + 96 * (len(kind.vectors) + len(kind.sparse))


def sparse_bytes(message: Message) -> int:
    """Bytes of the ``Sparse`` vectors of a message, or of several (``[C, d]``)."""
    if not message.sparse:
        return 0
    return sum(_least(getattr(message, name)) for name in message.sparse)


def encode(message: Message) -> bytes:
    """The declared vectors and nothing else."""
    tensors: dict[str, Tensor] = {}
    for name, v in message.items():
        tensors |= _packed(name, v) if name in message.sparse else {name: v}
    return save({name: v.detach().clone().contiguous() for name, v in tensors.items()})


def decode(kind: type[Message], frame: bytes, like: Tensor) -> Message:
    """A message of ``kind`` with vectors of the form of ``like``; all else is refused."""
    try:
        tensors = load(frame)
    except SafetensorError as error:
        raise BadFrame(f"{kind.__qualname__}: not a safetensors frame ({error})") from error
    packed = [name for name in kind.sparse if name not in tensors]
    expected = {n for name in kind.vectors for n in (_parts(name) if name in packed else (name,))}
    if set(tensors) != expected:
        raise BadFrame(
            f"{kind.__qualname__}: fields {sorted(tensors)} instead of {sorted(expected)}"
        )
    for name in packed:
        places, values = (tensors.pop(part) for part in _parts(name))
        tensors[name] = _unpacked(f"{kind.__qualname__}.{name}", places, values, like)
    for name, v in tensors.items():
        if v.shape != like.shape or v.dtype != like.dtype:
            raise BadFrame(f"{kind.__qualname__}.{name}: {_form(v)} instead of {_form(like)}")
    return kind(**{name: v.to(like.device) for name, v in tensors.items()})


def _form(v: Tensor) -> str:
    return f"{v.dtype} {list(v.shape)}"


def _parts(name: str) -> tuple[str, str]:
    return f"{name}.places", f"{name}.values"


def _numbering(d: int) -> torch.dtype:
    """The type of places in a vector of ``d`` numbers."""
    return torch.int32 if d <= 2**31 else torch.int64


def _least(rows: Tensor) -> int:
    """Bytes of vectors ``[d]`` or ``[C, d]``, each in the smaller of its two forms."""
    d, size = rows.shape[-1], rows.element_size()
    entries = rows.count_nonzero(-1) * (size + _numbering(d).itemsize)
    return int(entries.clamp(max=d * size).sum())


def _packed(name: str, v: Tensor) -> dict[str, Tensor]:
    if v.dim() != 1 or _least(v) == v.numel() * v.element_size():
        return {name: v}
    places = v.nonzero().squeeze(-1)
    return dict(zip(_parts(name), (places.to(_numbering(v.numel())), v[places]), strict=True))


def _unpacked(field: str, places: Tensor, values: Tensor, like: Tensor) -> Tensor:
    """The whole vector, once its entries are found to be some of it, each once."""
    d, kind = like.numel(), _numbering(like.numel())
    if places.dtype != kind or places.dim() != 1:
        raise BadFrame(f"{field}: places are {_form(places)} instead of {kind} [n]")
    if values.dtype != like.dtype or values.shape != places.shape:
        wanted = f"{like.dtype} {list(places.shape)}"
        raise BadFrame(f"{field}: values are {_form(values)} instead of {wanted}")
    if len(places) and not (
        int(places[0]) >= 0 and int(places[-1]) < d and bool((places[1:] > places[:-1]).all())
    ):
        raise BadFrame(f"{field}: places are not ascending numbers from 0 to {d - 1}")
    return torch.zeros(d, dtype=like.dtype).scatter(0, places.long(), values)
