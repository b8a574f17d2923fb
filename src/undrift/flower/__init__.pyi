"""What a Flower app of one's own uses; names load on first use."""

from .client_side import train
from .server_side import strategy

__all__ = ["strategy", "train"]
