"""Messages as bytes: safetensors, checked against the receiver's own declaration."""

from __future__ import annotations

from safetensors import SafetensorError
from safetensors.torch import load, save
from torch import Tensor

from undrift.core.struct import Message


class BadFrame(ValueError):
    """Bytes that are not the declared message."""


def encode(message: Message) -> bytes:
    """The declared vectors and nothing else."""
    return save({name: v.detach().clone().contiguous() for name, v in message.items()})


def decode(kind: type[Message], frame: bytes, like: Tensor) -> Message:
    """A message of ``kind`` whose vectors have the shape and type of ``like``; anything else is refused."""
    try:
        tensors = load(frame)
    except SafetensorError as error:
        raise BadFrame(f"{kind.__qualname__}: not a safetensors frame ({error})") from error
    if set(tensors) != set(kind.vectors):
        raise BadFrame(f"{kind.__qualname__}: fields {sorted(tensors)} instead of {sorted(kind.vectors)}")
    for name, v in tensors.items():
        if v.shape != like.shape or v.dtype != like.dtype:
            raise BadFrame(
                f"{kind.__qualname__}.{name}: {v.dtype} {list(v.shape)} instead of {like.dtype} {list(like.shape)}"
            )
    return kind(**{name: v.to(like.device) for name, v in tensors.items()})
