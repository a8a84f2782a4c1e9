"""Kernel sets: the compiled CK kernels that many cells share, from plan to archive."""
