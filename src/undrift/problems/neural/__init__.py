"""Networks trained on images or on a user's own tensors."""

from undrift.problems.neural.problem import Neural

__all__ = ["Neural"]
