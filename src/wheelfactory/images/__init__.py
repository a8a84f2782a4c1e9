"""Container images of the matrix: whether a disk holds them, and what a registry says of their tags and digests."""
