"""What the fallback is called; imports nothing, as the doctor's one file has it too."""

from __future__ import annotations

FALLBACK_NAME = "flash-attention-amd"
"""The normalized name of the project, and the word for it on the command line."""
