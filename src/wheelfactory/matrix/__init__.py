"""The matrix: matrix.yaml in, cells to build and combinations refused (each with its reason) out."""

from __future__ import annotations

from wheelfactory.matrix.expand import Excluded, Expansion, expand
from wheelfactory.matrix.facts import Matrix
from wheelfactory.matrix.load import load_matrix

__all__ = ["Excluded", "Expansion", "Matrix", "expand", "load_matrix"]
