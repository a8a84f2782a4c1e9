"""Check a published site: its index, its files, and installs of a sample of its wheels."""
