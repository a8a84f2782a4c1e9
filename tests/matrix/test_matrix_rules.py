"""Each rule: the combinations that it refuses, its reason, and the combinations that it allows."""

from __future__ import annotations

import pytest

from small_matrix import PREVIEW, Edit, small_matrix
from wheelfactory.core.cell import Backend, Cell
from wheelfactory.core.support import Answer, Finding
from wheelfactory.matrix.rules import (
    AXES,
    GPU,
    Combination,
    Rule,
    check_backend,
    check_common_arch,
    check_cxx_standard,
    check_flash_attn_python,
    check_flash_attn_torch,
    check_torch_index,
    check_torch_python,
    check_triton_version,
    exclusion_check,
    exclusion_rule,
    gpu_rules,
    judge_gpu_code,
    judge_preview,
    judge_torch_arch,
)

CK, TRITON = Backend.CK, Backend.TRITON
ALLOWED = ""


def test_a_release_needs_the_backend() -> None:
    for flash_attn, backend, reason in (
        ("2.6.3", TRITON, "flash-attn 2.6.3 has no triton backend"),
        ("2.6.3", CK, ALLOWED),
        ("2.8.3", TRITON, ALLOWED),
    ):
        assert check_backend(small_matrix(), flash_attn, backend) == reason


def test_a_rocm_needs_the_torch_on_its_index() -> None:
    for torch, rocm, reason in (
        ("2.9.1", "6.2", "torch 2.9.1 is not on the ROCm 6.2 index; it is on 6.4"),
        ("2.9.1", "6.4", ALLOWED),
    ):
        assert check_torch_index(small_matrix(), torch, rocm) == reason


def test_a_torch_on_no_index_is_refused_for_every_rocm() -> None:
    matrix = small_matrix(("torch: ['2.9.1']", "torch: ['2.5.1']"))
    reason = "torch 2.9.1 is not on the ROCm 6.4 index; no ROCm of matrix.yaml has it"
    assert check_torch_index(matrix, "2.9.1", "6.4") == reason


def test_a_torch_needs_to_be_built_for_the_python() -> None:
    for torch, python, reason in (
        ("2.5.1", "3.12", "torch 2.5.1 for ROCm has no Python 3.12; it has 3.11, 3.10"),
        ("2.9.1", "3.1", "torch 2.9.1 for ROCm has no Python 3.1; it has 3.12, 3.11"),
        ("2.9.1", "3.12", ALLOWED),
    ):
        assert check_torch_python(small_matrix(), torch, python) == reason


def test_a_release_needs_to_support_the_python() -> None:
    for flash_attn, python, reason in (
        ("2.6.3", "3.12", "flash-attn 2.6.3 needs Python >=3.8,<3.12, not 3.12"),
        ("2.8.3", "3.8", "flash-attn 2.8.3 needs Python >=3.9, not 3.8"),
        ("2.6.3", "3.11", ALLOWED),
        ("2.8.3", "3.10", ALLOWED),
    ):
        assert check_flash_attn_python(small_matrix(), flash_attn, python) == reason


def test_triton_kernels_need_the_triton_of_torch_in_their_window() -> None:
    for triton, allowed in (
        ("3.1.0", False),
        ("3.2.0", True),
        ("3.8.1", True),
        ("3.9.0", False),
        ("3.10.0", False),
    ):
        matrix = small_matrix(("triton: '3.5.1'", f"triton: '{triton}'"))
        reason = f"torch 2.9.1 brings Triton {triton}; the kernels of flash-attn 2.8.3 need >=3.2.0,<3.9"
        assert check_triton_version(matrix, "2.8.3", "2.9.1", TRITON) == (ALLOWED if allowed else reason)


def test_ck_kernels_do_not_care_which_triton_torch_brings() -> None:
    assert check_triton_version(small_matrix(), "2.8.3", "2.5.1", CK) == ALLOWED


def test_a_wheel_needs_an_arch_that_release_and_torch_share() -> None:
    for archs, backend, allowed in (
        ("[gfx1030]", CK, False),
        ("[gfx1100]", CK, False),
        ("[gfx1100]", TRITON, True),
        ("[gfx1030, gfx950]", CK, True),
    ):
        matrix = small_matrix(("[gfx942, gfx1030, gfx1100]", archs))
        reason = f"flash-attn 2.8.3 {backend} supports no arch that torch for ROCm 6.4 is built for"
        assert check_common_arch(matrix, "2.8.3", "6.4", backend) == (ALLOWED if allowed else reason)


TAKEN: Combination = ("2.8.3", "3.12", "2.9.1", "6.4", CK)

FULL_EXCLUSION: Edit = ("torch: '>=2.9'", "torch: '>=2.9'\n    flash-attn: ==2.8.3\n    rocm: '>=6.3,<7'")


def test_an_exclusion_takes_what_all_its_axes_name() -> None:
    for spared in (
        (("2.6.3", "3.12", "2.9.1", "6.4", CK)),
        (("2.8.3", "3.11", "2.9.1", "6.4", CK)),
        (("2.8.3", "3.12", "2.5.1", "6.4", CK)),
        (("2.8.3", "3.12", "2.9.1", "6.2", CK)),
        (("2.8.3", "3.12", "2.9.1", "6.4", TRITON)),
    ):
        rule = exclusion_rule(small_matrix(FULL_EXCLUSION).exclude[0])
        assert ask(rule, TAKEN) == "the compiler of this image stops"
        assert ask(rule, spared) == ALLOWED


def test_an_exclusion_takes_every_value_of_an_axis_it_leaves_out() -> None:
    for backend in Backend:
        rule = exclusion_rule(small_matrix(("backend: ck\n    torch", "torch")).exclude[0])
        assert ask(rule, ("2.6.3", "3.12", "2.9.1", "6.2", backend)) == "the compiler of this image stops"


def ask(rule: Rule, combination: Combination) -> str:
    """Return the reason of a rule for a combination; the rule gets only the axes that it names."""
    finding = rule.judge(*[combination[AXES.index(axis)] for axis in rule.axes])
    return finding.reason if finding else ALLOWED


KNOWN_ARCHS: Edit = (
    "window: '>=3.2.0,<3.9'",
    "window: '>=3.2.0,<3.9'\n"
    "      may-work: {gfx1151: AMD ships this release for it}\n"
    "      fails: {gfx906: Triton does not compile for it}",
)
UNLISTED = "flash-attn's Triton backend does not list {}, so no wheel promises it"


@pytest.mark.parametrize(
    ("flash_attn", "backend", "arch", "finding"),
    [
        pytest.param("2.8.3", CK, "gfx942", None, id="listed"),
        pytest.param("2.8.3", TRITON, "gfx1100", None, id="listed-by-triton"),
        pytest.param("2.6.3", TRITON, "gfx1100", None, id="no-such-backend-is-another-rule"),
        pytest.param(
            *("2.8.3", CK, "gfx1030"),
            Finding(Answer.DOES_NOT_WORK, "CK in flash-attn up to 2.8.3 does not support gfx1030"),
            id="ck-of-no-release",
        ),
        pytest.param(
            *("2.6.3", CK, "gfx950"),
            Finding(Answer.DOES_NOT_WORK, "flash-attn 2.6.3: CK does not support gfx950; 2.8.3 does"),
            id="ck-of-another-release",
        ),
        pytest.param(
            *("2.8.3", TRITON, "gfx1151"),
            Finding(Answer.MAY_WORK, f"{UNLISTED.format('gfx1151')}: AMD ships this release for it"),
            id="triton-may-work",
        ),
        pytest.param(
            *("2.8.3", TRITON, "gfx1030"),
            Finding(Answer.MAY_WORK, f"{UNLISTED.format('gfx1030')}: nobody has reported whether it works"),
            id="triton-unknown",
        ),
        pytest.param(
            *("2.8.3", TRITON, "gfx906"),
            Finding(Answer.DOES_NOT_WORK, "flash-attn's Triton kernels fail on gfx906: Triton does not compile for it"),
            id="triton-fails",
        ),
    ],
)
def test_a_gpu_needs_code_of_the_release(flash_attn: str, backend: Backend, arch: str, finding: Finding | None) -> None:
    assert judge_gpu_code(small_matrix(KNOWN_ARCHS), flash_attn, backend, arch) == finding


def test_a_preview_may_work_where_a_release_is_promised() -> None:
    assert judge_preview("2.8.3") is None
    assert judge_preview("2.8.4+git4a948e9") == Finding(
        Answer.MAY_WORK,
        "flash-attn 2.8.4 preview (commit 4a948e9) is not a release of upstream; its wheels have an index of their own",
    )


def test_an_arch_that_only_a_preview_compiles_for_is_told_with_the_preview() -> None:
    matrix = small_matrix(PREVIEW)
    preview = "2.8.4 preview (commit 4a948e9)"
    assert judge_gpu_code(matrix, "2.8.3", CK, "gfx1100") == Finding(
        Answer.DOES_NOT_WORK, f"CK in flash-attn up to 2.8.3 does not support gfx1100; {preview} does"
    )
    assert judge_gpu_code(matrix, "2.8.4+git4a948e9", CK, "gfx1100") is None
    assert judge_gpu_code(matrix, "2.8.4+git4a948e9", CK, "gfx1101") == Finding(
        Answer.MAY_WORK,
        f"the CK kernels of flash-attn {preview} are compiled for gfx1101, and not proved on it: "
        "upstream names no test on it",
    )


def test_a_reason_about_triton_names_the_preview_but_no_release() -> None:
    """Otherwise two reasons contradict each other for a GPU that was tried with a release and not with the preview."""
    source = "      source: setup.py of the commit\n"
    triton = "    triton: {archs: [gfx942], window: '>=3.6.0,<3.9', wheel-size: 150 kB to 5 MB, source: its setup.py}\n"
    found = judge_gpu_code(small_matrix(PREVIEW, (source, source + triton)), "2.8.4+git4a948e9", TRITON, "gfx1103")
    assert found == Finding(
        Answer.MAY_WORK,
        "the Triton backend of flash-attn 2.8.4 preview (commit 4a948e9) does not list gfx1103, so no wheel "
        "promises it: nobody has reported whether it works",
    )


def test_a_preview_can_be_for_some_torch_releases_only() -> None:
    matrix = small_matrix(PREVIEW)
    assert check_flash_attn_torch(matrix, "2.8.4+git4a948e9", "2.9.1") == ALLOWED
    assert check_flash_attn_torch(matrix, "2.8.3", "2.5.1") == ALLOWED
    reason = "flash-attn 2.8.4 preview (commit 4a948e9) is built for torch >=2.9, not 2.5.1"
    assert check_flash_attn_torch(matrix, "2.8.4+git4a948e9", "2.5.1") == reason


def test_ck_needs_the_c_plus_plus_standard_of_the_headers_of_torch() -> None:
    newer = ("    platform: manylinux_2_28_x86_64", "    cxx-standard: '20'\n    platform: manylinux_2_28_x86_64")
    matrix = small_matrix(PREVIEW, newer)
    for flash_attn, torch, backend, reason in (
        (
            *("2.8.3", "2.9.1", CK),
            "torch 2.9.1 needs C++20 headers, and setup.py of these releases compiles with -std=c++17",
        ),
        ("2.8.3", "2.9.1", TRITON, ALLOWED),
        ("2.8.3", "2.5.1", CK, ALLOWED),
        ("2.8.4+git4a948e9", "2.9.1", CK, ALLOWED),
    ):
        assert check_cxx_standard(matrix, flash_attn, torch, backend) == reason


def test_a_gpu_needs_a_torch_that_is_built_for_it() -> None:
    for rocm, arch, reason in (
        ("6.2", "gfx1100", "torch for ROCm 6.2 is not built for gfx1100; torch for ROCm 6.4 is"),
        ("6.4", "gfx900", "PyTorch does not build torch for gfx900 on any ROCm of the matrix"),
    ):
        assert judge_torch_arch(small_matrix(), rocm, arch) == Finding(Answer.DOES_NOT_WORK, reason)
    assert judge_torch_arch(small_matrix(), "6.4", "gfx1100") is None


def test_a_gpu_that_only_some_torches_of_a_rocm_are_built_for_may_work() -> None:
    edit = ("images:", "may-work: {gfx1201: torch 2.7.1 has code for it}\n    images:")
    known = "not every torch for ROCm 6.4 is known to be built for gfx1201: torch 2.7.1 has code for it"
    assert judge_torch_arch(small_matrix(edit), "6.4", "gfx1201") == Finding(Answer.MAY_WORK, known)


@pytest.mark.parametrize("backend", Backend)
def test_the_rules_of_a_gpu_leave_just_the_archs_that_a_wheel_promises(backend: Backend) -> None:
    matrix = small_matrix()
    archs = ["gfx900", "gfx90a", "gfx942", "gfx950", "gfx1030", "gfx1100"]

    def is_refused(arch: str) -> bool:
        values = {"flash-attn": "2.8.3", "rocm": "6.4", "backend": backend, GPU: arch}
        return any(rule.judge(*map(values.__getitem__, rule.axes)) for rule in gpu_rules(matrix))

    promised = matrix.archs(Cell("2.8.3", "3.11", "2.9.1", "6.4", backend))
    assert {arch for arch in archs if not is_refused(arch)} == set(promised)


def test_the_first_reason_is_the_one_told() -> None:
    for combination, reason in (
        (("2.6.3", "3.12", "2.5.1", "6.4", TRITON), "flash-attn 2.6.3 has no triton"),
        (("2.6.3", "3.12", "2.5.1", "6.4", CK), "torch 2.5.1 is not on the ROCm 6.4"),
        (("2.6.3", "3.12", "2.5.1", "6.2", CK), "torch 2.5.1 for ROCm has no Python 3.12"),
        (("2.6.3", "3.12", "2.9.1", "6.4", CK), "flash-attn 2.6.3 needs Python"),
        (("2.8.3", "3.11", "2.5.1", "6.2", TRITON), "torch 2.5.1 brings Triton 3.1.0"),
        (TAKEN, "the compiler of this image stops"),
    ):
        assert exclusion_check(small_matrix())(combination).startswith(reason)


def test_archs_are_told_before_an_exclusion() -> None:
    refuse = exclusion_check(small_matrix(("[gfx942, gfx1030, gfx1100]", "[gfx1030]")))
    assert refuse(TAKEN).startswith("flash-attn 2.8.3 ck supports no arch")


def test_a_combination_that_works_has_no_reason_against_it() -> None:
    for combination in (
        (("2.8.3", "3.11", "2.9.1", "6.4", CK)),
        (("2.8.3", "3.12", "2.9.1", "6.4", TRITON)),
        (("2.6.3", "3.11", "2.5.1", "6.2", CK)),
    ):
        assert exclusion_check(small_matrix())(combination) == ALLOWED
