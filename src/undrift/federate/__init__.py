"""`undrift federate` and `undrift join`: clients on machines of their own, over Flower."""
