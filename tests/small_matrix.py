"""A matrix of 32 combinations, five cells, as text to edit and as a `Matrix`."""

from __future__ import annotations

from typing import TypeAlias

import yaml

from wheelfactory.matrix.facts import Matrix

Edit: TypeAlias = tuple[str, str]
"""A piece of the text and its replacement."""

SMALL = """\
backend: [ck, triton]

python: ['3.12', '3.11']

flash-attn:
  '2.8.3':
    sdist:
      file: flash_attn-2.8.3.tar.gz
      sha256: 1e71dd64a9e0280e0447b8a0c2541bad4bf6ac65bdeaa2f90e51a9e57de0370d
    python: '>=3.9'
    ck:
      archs: [gfx90a, gfx942, gfx950]
      wheel-size: 20 MB to 1000 MB
      source: setup.py of the sdist
    triton:
      archs: [gfx942, gfx90a, gfx1100]
      window: '>=3.2.0,<3.9'
      wheel-size: 150 kB to 5 MB
      source: measured at both ends
    source: sdist on PyPI
  '2.6.3':
    git:
      repository: https://github.com/Dao-AILab/flash-attention
      tag: v2.6.3
      commit: 418d677192b483dfc1decfdf9aadca40b402485d
    python: '>=3.8,<3.12'
    ck:
      archs: [gfx90a, gfx942]
      wheel-size: 20 MB to 1000 MB
      source: setup.py of the tag
    source: tag on GitHub

torch:
  '2.9.1':
    python: ['3.12', '3.11']
    triton: '3.5.1'
    triton-package: pytorch-triton-rocm
    cxx11-abi: true
    platform: manylinux_2_28_x86_64
    source: build matrix of torch 2.9.1
  '2.5.1':
    python: ['3.11', '3.10']
    triton: '3.1.0'
    triton-package: pytorch-triton-rocm
    cxx11-abi: false
    platform: linux_x86_64
    source: build matrix of torch 2.5.1

rocm:
  '6.4':
    torch: ['2.9.1']
    index: https://download.pytorch.org/whl/rocm6.4
    archs: [gfx942, gfx1030, gfx1100]
    images:
      - tag: rocm/pytorch:first
        distribution: ubuntu22.04
        glibc: '2.35'
        python: '3.10'
        python-path: /opt/venv/bin/python
        rocm-path: /opt/rocm
        torch: '2.6.0'
        source: documentation of ROCm 6.4
      - tag: rocm/pytorch:python
        distribution: ubuntu24.04
        glibc: '2.39'
        python: '3.12'
        python-path: /opt/venv/bin/python
        rocm-path: /opt/rocm
        torch: '2.6.0'
        source: documentation of ROCm 6.4
      - tag: rocm/pytorch:torch
        distribution: ubuntu22.04
        glibc: '2.35'
        python: '3.10'
        python-path: /opt/venv/bin/python
        rocm-path: /opt/rocm
        torch: '2.9.1'
        source: documentation of ROCm 6.4
      - tag: rocm/pytorch:torch-and-python
        distribution: ubuntu24.04
        glibc: '2.39'
        python: '3.11'
        python-path: /opt/venv/bin/python
        rocm-path: /opt/rocm
        torch: '2.9.1'
        source: documentation of ROCm 6.4
    source: index of ROCm 6.4
  '6.2':
    torch: ['2.5.1']
    index: https://download.pytorch.org/whl/rocm6.2
    archs: [gfx90a, gfx942]
    images:
      - tag: rocm/pytorch:6.2
        distribution: ubuntu22.04
        glibc: '2.35'
        python: '3.10'
        python-path: /opt/venv/bin/python
        rocm-path: /opt/rocm
        torch: '2.3.0'
        source: documentation of ROCm 6.2
    source: index of ROCm 6.2

dependencies:
  einops:
    version: '0.8.2'
    wheel: einops-0.8.2-py3-none-any.whl
    sha256: 54058201ac7087911181bfec4af6091bb59380360f069276601256a76af08193
    source: pure wheel on PyPI

exclude:
  - backend: ck
    torch: '>=2.9'
    python: '==3.12'
    reason: the compiler of this image stops
    source: a log of ours
"""

PREVIEW: Edit = (
    "  '2.6.3':",
    """\
  '2.8.4+git4a948e9':
    git: {repository: 'https://github.com/Dao-AILab/flash-attention', commit: 4a948e9c94c21067994572f5b6f37318241d436d}
    python: '>=3.9'
    torch: '>=2.9'
    ck:
      archs: [gfx942, gfx1100, gfx1101]
      may-work: {gfx1101: upstream names no test on it}
      cxx-standard: '20'
      wheel-size: 20 MB to 1000 MB
      source: setup.py of the commit
    source: commit on GitHub
  '2.6.3':""",
)
"""Adds a preview with CK kernels for gfx1100, which no release has, and gfx1101, which is not proved."""

AMD_TORCH: Edit = (
    "rocm/pytorch:torch-and-python",
    "rocm/pytorch:rocm6.4.4_ubuntu24.04_py3.11_pytorch_release_2.9.1",
)
"""Names an image as AMD does, so that there are cells for the torch in it."""


def slim_image(rocm: str, ubuntu: str = "22.04", *more: str) -> Edit:
    """Give a ROCm release a slim image, with more fields."""
    glibc, python = {"22.04": ("2.35", "3.10"), "24.04": ("2.39", "3.12")}[ubuntu]
    fields = (
        *(f"tag: rocm/dev-ubuntu-{ubuntu}:{rocm}-complete", f"distribution: ubuntu{ubuntu}", f"glibc: '{glibc}'"),
        *(f"python: '{python}'", "python-path: /usr/bin/python3", "rocm-path: /opt/rocm"),
        *(f"source: documentation of ROCm {rocm}", *more),
    )
    source = f"    source: index of ROCm {rocm}\n"
    return source, f"    slim: {{{', '.join(fields)}}}\n{source}"


def edited(*edits: Edit) -> str:
    """Apply each edit to the first match in `SMALL`; give more context to pick a later match."""
    text = SMALL
    for old, new in edits:
        assert old in text, f"{old!r} is not in SMALL"
        text = text.replace(old, new, 1)
    return text


def small_matrix(*edits: Edit) -> Matrix:
    """The `Matrix` of the edited text."""
    return Matrix.model_validate(yaml.safe_load(edited(*edits)))
