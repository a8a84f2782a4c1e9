"""What the doctor needs of matrix.yaml and the gates, as it runs where neither they nor a reader of YAML are."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass

from wheelfactory.core.cell import major_minor


@dataclass(frozen=True)
class TorchFacts:
    """One torch release as PyTorch builds it for ROCm."""

    torch: tuple[int, int]
    pythons: tuple[tuple[int, int], tuple[int, int]]
    """The oldest and the newest Python that it is built for."""
    triton_package: str
    """The distribution that brings its Triton, such as ``triton-rocm``."""


@dataclass(frozen=True)
class DoctorFacts:
    """All of it."""

    triton_windows: Mapping[str, tuple[tuple[int, int], tuple[int, int]]]
    """By flash-attn release, the first Triton that takes its kernels and the first one after that which does not."""
    torches: tuple[TorchFacts, ...]
    """The newest first."""
    fallback_torch: tuple[int, int]
    """The oldest torch that flash-attention-amd runs with."""
    required_gates: Mapping[str, tuple[str, ...]]
    """By backend, the gates that a wheel must pass to be verified."""

    @classmethod
    def parse(cls, text: str) -> DoctorFacts:
        """The facts of the JSON that `wheelfactory.site.doctor_facts` writes."""
        found = json.loads(text)
        return cls(
            {release: _pair(window) for release, window in found["windows"].items()},
            tuple(
                TorchFacts(major_minor(version), _pair(pythons), triton)
                for version, pythons, triton in found["torches"]
            ),
            major_minor(found["fallback_torch"]),
            {backend: tuple(gates) for backend, gates in found["required"].items()},
        )

    def find_triton_window(self, release: str) -> tuple[tuple[int, int], tuple[int, int]] | None:
        """The window of a release, labelled or not; or else of its post-release, or of what it is a post-release of.

        Post-releases have the same kernels.
        """
        release = release.partition("+")[0]
        base = release.partition(".post")[0]
        related = (window for name, window in self.triton_windows.items() if name.partition(".post")[0] == base)
        return self.triton_windows.get(release) or next(related, None)

    def find_torch(self, version: tuple[int, int]) -> TorchFacts:
        """What is known of a torch: of a newer one than all what holds for the newest, of an older one the oldest."""
        return next((known for known in self.torches if version >= known.torch), self.torches[-1])

    @property
    def rocm_triton_packages(self) -> tuple[str, ...]:
        """The distributions that bring Triton for ROCm, that of the oldest torch first."""
        return tuple(dict.fromkeys(known.triton_package for known in reversed(self.torches)))


def _pair(versions: list[str]) -> tuple[tuple[int, int], tuple[int, int]]:
    first, second = versions
    return major_minor(first), major_minor(second)
