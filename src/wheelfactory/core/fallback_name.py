"""What the fallback is called; imports nothing, as the doctor's one file has it too."""

from __future__ import annotations

FALLBACK_NAME = "flash-attention-amd"
"""The normalized name of the project, and the word for it on the command line."""

FALLBACK_TORCH = (2, 5)
"""The oldest torch that it runs with, as its pyproject.toml says; the doctor has no such file."""
