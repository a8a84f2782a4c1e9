"""A GPU and a wheel, or what is installed: whether it computes what it should, and how fast."""
