"""Read matrix.yaml, and expand it to cells and to excluded combinations with their reasons."""
