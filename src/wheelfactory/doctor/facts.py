"""The facts from matrix.yaml and the gates that the doctor embeds, because users have neither the file nor PyYAML."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from wheelfactory.core.cell import public_version
from wheelfactory.core.label import rocm_of_torch
from wheelfactory.core.strict import parse_record
from wheelfactory.core.support import SupportTables
from wheelfactory.doctor.machine import InstalledTorch


@dataclass(frozen=True)
class TorchFacts:
    """One torch release, as PyTorch builds it for ROCm."""

    torch: tuple[int, int]
    pythons: tuple[tuple[int, int], tuple[int, int]]
    """The oldest and the newest Python with a build."""
    triton_package: str
    """The distribution of its Triton, such as ``triton-rocm``."""
    triton: str
    """The version of that Triton, which PyTorch's torch requires."""


@dataclass(frozen=True)
class DoctorFacts:
    """All embedded facts."""

    triton_windows: Mapping[str, tuple[tuple[int, int], tuple[int, int]]]
    """By flash-attn release: the Triton range [first, end) in which its kernels compile."""
    torches: tuple[TorchFacts, ...]
    """Newest first."""
    fallback_torch: tuple[int, int]
    """The oldest torch that flash-attention-amd supports."""
    required_gates: Mapping[str, tuple[str, ...]]
    """By backend: the gates that a verified wheel has passed."""
    refused_options: Mapping[str, Mapping[str, tuple[str, ...]]]
    """By flash-attn release and backend: the options for which a wheel raises an error."""
    hips: Mapping[str, str]
    """The HIP of each ROCm."""
    indexes: Mapping[str, str]
    """PyTorch's index for each ROCm."""
    support: SupportTables
    """The rules of the matrix."""

    @classmethod
    def parse(cls, text: str) -> DoctorFacts:
        """Parse the JSON that `wheelfactory.site.doctor_file` writes."""
        return parse_record(cls, text.replace("\n", " "))  # doctor.py wraps the lines, also within texts

    def find_triton_window(self, release: str) -> tuple[tuple[int, int], tuple[int, int]] | None:
        """Return the supported Triton window [first, end) of a release, with or without label; None if unknown."""
        release = public_version(release)
        # a post-release has the kernels of its release, so it shares the window
        base = release.partition(".post")[0]
        related = (window for name, window in self.triton_windows.items() if name.partition(".post")[0] == base)
        return self.triton_windows.get(release) or next(related, None)

    def find_refused(self, release: str, backend: str) -> tuple[str, ...]:
        """Return the options for which a wheel of a release, with or without label, raises an error."""
        return self.refused_options.get(public_version(release), {}).get(backend, ())

    def find_rocm(self, torch: InstalledTorch | None) -> tuple[int, int] | None:
        """Return the ROCm of a torch as (major, minor); None if it is not built for ROCm, or names none."""
        return rocm_of_torch(torch.version, torch.hip, torch.rocm, self.hips) if torch else None

    def find_torch(self, version: tuple[int, int]) -> TorchFacts:
        """Return the facts of the newest known torch that is not newer than `version`, or of the oldest known torch."""
        return next((known for known in self.torches if version >= known.torch), self.torches[-1])

    @property
    def rocm_triton_packages(self) -> tuple[str, ...]:
        """The distributions of Triton for ROCm, oldest torch first."""
        return tuple(dict.fromkeys(known.triton_package for known in reversed(self.torches)))
