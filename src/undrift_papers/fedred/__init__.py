"""FedRed's Table 1: what the bounds of theory prescribe, and what is measured."""
