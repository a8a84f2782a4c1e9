"""The index: manifest rows in, the pages that pip and uv install from out."""

from __future__ import annotations

from wheelfactory.index.pages import IndexKey, index_path, make_pages
from wheelfactory.index.write import write_index

__all__ = ["IndexKey", "index_path", "make_pages", "write_index"]
