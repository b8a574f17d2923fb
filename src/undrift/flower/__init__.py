"""A real federation, on Flower's SuperLink and SuperNodes."""
