"""flash-attention-amd, the pure-PyTorch distribution of this checkout: its wheel, and the gates that are its own."""
