"""The matrix: matrix.yaml in, cells to build and combinations refused (each with its reason) out."""
