"""The search page: matrix and manifest rows in, the files of a static page that finds a wheel for a machine out."""

from __future__ import annotations

from wheelfactory.search.files import site_files

__all__ = ["site_files"]
