"""Each rule: the combinations that it refuses, its reason, and the combinations that it allows."""

from __future__ import annotations

import pytest

from small_matrix import PREVIEW, Edit, small_matrix
from wheelfactory.core.cell import Backend, Cell
from wheelfactory.core.support import Answer, Finding
from wheelfactory.matrix.rules import (
    GPU,
    Combination,
    exclusion_check,
    gpu_rules,
    judge_gpu_code,
    judge_preview,
    judge_torch_arch,
)

CK, TRITON = Backend.CK, Backend.TRITON
ALLOWED, NOT, MAY = "", Answer.DOES_NOT_WORK, Answer.MAY_WORK
EXCLUDED = "the compiler of this image stops"

GOOD: Combination = ("2.8.3", "3.11", "2.9.1", "6.4", CK)
GOOD_TRITON: Combination = ("2.8.3", "3.11", "2.9.1", "6.4", TRITON)
TAKEN: Combination = ("2.8.3", "3.12", "2.9.1", "6.4", CK)
FULL_EXCLUSION: Edit = ("torch: '>=2.9'", "torch: '>=2.9'\n    flash-attn: ==2.8.3\n    rocm: '>=6.3,<7'")
NOWHERE: Edit = ("torch: ['2.9.1']", "torch: ['2.5.1']")
ANY_BACKEND: Edit = ("backend: ck\n    torch", "torch")
CXX_20: Edit = ("    platform: manylinux_2_28_x86_64", "    cxx-standard: '20'\n    platform: manylinux_2_28_x86_64")
NEW = "2.8.4+git4a948e9"
PREVIEW_NAME = "flash-attn 2.8.4 preview (commit 4a948e9)"
WINDOW = "the kernels of flash-attn 2.8.3 need >=3.2.0,<3.9"


def triton(version: str) -> Edit:
    return "triton: '3.5.1'", f"triton: '{version}'"


def archs(names: str) -> Edit:
    return "[gfx942, gfx1030, gfx1100]", f"[{names}]"


def no_arch(backend: Backend) -> str:
    return f"flash-attn 2.8.3 {backend} supports no arch that torch for ROCm 6.4 is built for"


@pytest.mark.parametrize(
    ("edits", "combination", "reason"),
    [
        ([], GOOD, ALLOWED),
        ([], ("2.8.3", "3.12", "2.9.1", "6.4", TRITON), ALLOWED),
        # of several reasons the first is the one told
        ([], ("2.6.3", "3.12", "2.5.1", "6.4", TRITON), "flash-attn 2.6.3 has no triton backend"),
        ([], ("2.6.3", "3.12", "2.5.1", "6.4", CK), "torch 2.5.1 is not on the ROCm 6.4 index; it is on 6.2"),
        ([], ("2.6.3", "3.12", "2.5.1", "6.2", CK), "torch 2.5.1 for ROCm has no Python 3.12; it has 3.11, 3.10"),
        ([], ("2.6.3", "3.12", "2.9.1", "6.4", CK), "flash-attn 2.6.3 needs Python >=3.8,<3.12, not 3.12"),
        ([], ("2.8.3", "3.11", "2.5.1", "6.2", TRITON), f"torch 2.5.1 brings Triton 3.1.0; {WINDOW}"),
        ([archs("gfx1030")], TAKEN, no_arch(CK)),
        ([], TAKEN, EXCLUDED),
        # torch
        ([NOWHERE], GOOD, "torch 2.9.1 is not on the ROCm 6.4 index; no ROCm of matrix.yaml has it"),
        ([], ("2.8.3", "3.1", "2.9.1", "6.4", CK), "torch 2.9.1 for ROCm has no Python 3.1; it has 3.12, 3.11"),
        ([PREVIEW], (NEW, "3.11", "2.5.1", "6.2", CK), f"{PREVIEW_NAME} is built for torch >=2.9, not 2.5.1"),
        ([PREVIEW], ("2.8.4+git4a948e9", "3.11", "2.9.1", "6.4", CK), ALLOWED),
        ([CXX_20], GOOD, "torch 2.9.1 needs C++20 headers, and setup.py of these releases compiles with -std=c++17"),
        ([CXX_20], GOOD_TRITON, ALLOWED),
        ([CXX_20, PREVIEW], ("2.8.4+git4a948e9", "3.11", "2.9.1", "6.4", CK), ALLOWED),
        # Triton, by number
        ([triton("3.1.0")], GOOD_TRITON, f"torch 2.9.1 brings Triton 3.1.0; {WINDOW}"),
        ([triton("3.2.0")], GOOD_TRITON, ALLOWED),
        ([triton("3.10.0")], GOOD_TRITON, f"torch 2.9.1 brings Triton 3.10.0; {WINDOW}"),
        ([triton("3.10.0")], GOOD, ALLOWED),
        # archs
        ([archs("gfx1100")], GOOD, no_arch(CK)),
        ([archs("gfx1100")], GOOD_TRITON, ALLOWED),
        # an exclusion takes what all its axes name, and every value of an axis that it leaves out
        ([FULL_EXCLUSION], TAKEN, EXCLUDED),
        ([FULL_EXCLUSION], ("2.8.3", "3.12", "2.9.1", "6.4", TRITON), ALLOWED),
        ([("torch: '>=2.9'", "flash-attn: ==2.6.3")], TAKEN, ALLOWED),
        ([ANY_BACKEND], ("2.8.3", "3.12", "2.9.1", "6.4", TRITON), EXCLUDED),
    ],
)
def test_a_combination_is_refused_with_its_reason(edits: list[Edit], combination: Combination, reason: str) -> None:
    assert exclusion_check(small_matrix(*edits))(combination) == reason


KNOWN_ARCHS: Edit = (
    "window: '>=3.2.0,<3.9'",
    "window: '>=3.2.0,<3.9'\n"
    "      may-work: {gfx1151: AMD ships this release for it}\n"
    "      fails: {gfx906: no compile of it so far}",
)
UNLISTED = "flash-attn's Triton backend does not list {}, so no wheel promises it"


PREVIEW_TRITON: Edit = (
    "      source: setup.py of the commit\n",
    "      source: setup.py of the commit\n"
    "    triton: {archs: [gfx942], window: '>=3.6.0,<3.9', wheel-size: 150 kB to 5 MB, source: its setup.py}\n",
)
CK_UP_TO = "CK in flash-attn up to 2.8.3 does not support"


@pytest.mark.parametrize(
    ("edits", "flash_attn", "backend", "arch", "answer", "reason"),
    [
        ([], "2.8.3", CK, "gfx942", None, ""),
        ([], "2.8.3", TRITON, "gfx1100", None, ""),
        ([], "2.6.3", TRITON, "gfx1100", None, ""),  # no such backend, which is another rule
        ([], "2.8.3", CK, "gfx1030", NOT, f"{CK_UP_TO} gfx1030"),
        ([], "2.6.3", CK, "gfx950", NOT, "flash-attn 2.6.3: CK does not support gfx950; 2.8.3 does"),
        ([], "2.8.3", TRITON, "gfx1151", MAY, f"{UNLISTED.format('gfx1151')}: AMD ships this release for it"),
        ([], "2.8.3", TRITON, "gfx1030", MAY, f"{UNLISTED.format('gfx1030')}: nobody has reported whether it works"),
        ([], "2.8.3", TRITON, "gfx906", NOT, "flash-attn's Triton kernels fail on gfx906: no compile of it so far"),
        # an arch that only a preview compiles for
        ([PREVIEW], "2.8.3", CK, "gfx1100", NOT, f"{CK_UP_TO} gfx1100; 2.8.4 preview (commit 4a948e9) does"),
        ([PREVIEW], NEW, CK, "gfx1100", None, ""),
        (
            *([PREVIEW], NEW, CK, "gfx1101", MAY),
            f"the CK kernels of {PREVIEW_NAME} are compiled for gfx1101, and not proved on it: upstream names no test "
            "on it",
        ),
        # tried with a release and not with the preview, so that the two reasons must differ
        (
            *([PREVIEW, PREVIEW_TRITON], NEW, TRITON, "gfx1103", MAY),
            f"the Triton backend of {PREVIEW_NAME} does not list gfx1103, so no wheel promises it: nobody has reported "
            "whether it works",
        ),
    ],
)
def test_a_gpu_needs_code_of_the_release(
    edits: list[Edit], flash_attn: str, backend: Backend, arch: str, answer: Answer | None, reason: str
) -> None:
    found = judge_gpu_code(small_matrix(KNOWN_ARCHS, *edits), flash_attn, backend, arch)
    assert found == (answer and Finding(answer, reason))


def test_a_preview_may_work_where_a_release_is_promised() -> None:
    assert judge_preview("2.8.3") is None
    reason = f"{PREVIEW_NAME} is not a release of upstream; its wheels have an index of their own"
    assert judge_preview(NEW) == Finding(MAY, reason)


def test_a_gpu_needs_a_torch_that_is_built_for_it_or_may_work_with_some_torches() -> None:
    matrix = small_matrix(("images:", "may-work: {gfx1201: torch 2.7.1 has code for it}\n    images:"))
    some = "not every torch for ROCm 6.4 is known to be built for gfx1201: torch 2.7.1 has code for it"
    for rocm, arch, answer, reason in (
        ("6.2", "gfx1100", NOT, "torch for ROCm 6.2 is not built for gfx1100; torch for ROCm 6.4 is"),
        ("6.4", "gfx900", NOT, "PyTorch does not build torch for gfx900 on any ROCm of the matrix"),
        ("6.4", "gfx1201", MAY, some),
    ):
        assert judge_torch_arch(matrix, rocm, arch) == Finding(answer, reason)
    assert judge_torch_arch(matrix, "6.4", "gfx1100") is None


@pytest.mark.parametrize("backend", Backend)
def test_the_rules_of_a_gpu_leave_just_the_archs_that_a_wheel_promises(backend: Backend) -> None:
    matrix = small_matrix()
    archs = ["gfx900", "gfx90a", "gfx942", "gfx950", "gfx1030", "gfx1100"]

    def is_refused(arch: str) -> bool:
        values = {"flash-attn": "2.8.3", "rocm": "6.4", "backend": backend, GPU: arch}
        return any(rule.judge(*map(values.__getitem__, rule.axes)) for rule in gpu_rules(matrix))

    promised = matrix.archs(Cell("2.8.3", "3.11", "2.9.1", "6.4", backend))
    assert {arch for arch in archs if not is_refused(arch)} == set(promised)
