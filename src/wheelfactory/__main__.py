"""``python -m wheelfactory`` is the ``wheelfactory`` command."""

from __future__ import annotations

from wheelfactory.cli import main

if __name__ == "__main__":
    raise SystemExit(main())
