"""The devices that the tests run on: the CPU, and the GPU if torch has one."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import torch

sys.path.insert(0, str(Path(__file__).parent))  # the reference, also where pytest imports test modules by path
sys.path.insert(0, str(Path(__file__).parents[2] / "flash_attn_fallback/src"))

from flash_attention_amd import blocks

DEVICES = ["cpu", *(["cuda"] if torch.cuda.is_available() else [])]


@pytest.fixture(params=DEVICES)
def device(request: pytest.FixtureRequest) -> str:
    """Each device in turn, and the same random numbers for each test."""
    torch.set_num_threads(1)
    torch.manual_seed(0)
    return str(request.param)


@pytest.fixture
def small_tiles(monkeypatch: pytest.MonkeyPatch) -> None:
    """So few scores at once that sequences, heads and queries of small tensors are divided."""
    monkeypatch.setattr(blocks, "TILE", 700)
    monkeypatch.setattr(blocks, "GPU_TILE", 700)
