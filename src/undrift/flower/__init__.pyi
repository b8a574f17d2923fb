"""What a Flower app of one's own uses; names load on first use."""

from .client_training import train
from .method_strategy import strategy

__all__ = ["strategy", "train"]
