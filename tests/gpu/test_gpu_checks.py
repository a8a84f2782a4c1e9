"""Checks of a validation: the imported package is the installed wheel on its GPU; each result has its bound."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from typing import Any

import pytest

from gpu.installations import H200, MI300X, NO_GPU, fallback, installed, with_arch, with_software
from numeric_reports import FILES, SITE, case, numbers
from wheel_factory import CK, TRITON, build_record
from wheelfactory.core.cell import Backend
from wheelfactory.gpu.checks import as_cases, check_calls, check_installed
from wheelfactory.gpu.installed import InstalledPackage
from wheelfactory.gpu.torch_python import TorchPython
from wheelfactory.gpu.validation_report import ResultError, ValidationCase, ValidationCheck
from wheelfactory.verify import accuracy as rule
from wheelfactory.verify.accuracy import AITER_TOLERANCE, TOLERANCES, KnownLimit, NumericReport
from wheelfactory.verify.result import Status

TRITON_MODULE = TOLERANCES[Backend.TRITON].module
FALLBACK = f"{SITE}/flash_attention_amd/__init__.py"


def found(
    name: str, package: InstalledPackage, python: TorchPython | None = MI300X, *, non_amd_gpu: bool = False
) -> ValidationCheck:
    (check,) = [check for check in check_installed(package, python, non_amd_gpu=non_amd_gpu) if check.name == name]
    return check


def called(name: str, package: InstalledPackage, report: NumericReport | None) -> ValidationCheck:
    (check,) = [check for check in check_calls(package, report, elsewhere=False) if check.name == name]
    return check


@pytest.mark.parametrize(
    ("package", "report", "names"),
    [
        (installed(), numbers(), ("files", "build record", "torch", "ROCm", "arch", "backend", "module")),
        (fallback(), numbers(backend="flash_attention_amd", file=FALLBACK), ("files", "torch", "module")),
    ],
)
def test_what_is_good_passes_all_its_checks(
    package: InstalledPackage, report: NumericReport, names: Collection[str]
) -> None:
    checks = [*check_installed(package, MI300X, non_amd_gpu=False), *check_calls(package, report, elsewhere=False)]
    assert {check.name: check.status for check in checks} == dict.fromkeys(names, Status.PASSED)


def test_the_label_of_torch_names_its_rocm_for_a_ck_wheel_and_a_triton_wheel_needs_none() -> None:
    ck = installed(version="2.8.3+rocm72torch2.13", record=None)
    for torch, hip, fits in (
        ("2.13.0+rocm7.2", "7.15.26333", True),
        ("2.13.0+rocm7.1", "7.2.53211", False),
        ("2.13.0+git1234567", "7.2.53211", True),
    ):
        check = found("ROCm", ck, with_software(MI300X, torch=torch, hip=hip))
        assert (check.status is Status.PASSED) == fits, check.detail
    assert found("ROCm", installed(), with_software(MI300X, torch="2.13.0+rocm7.1")).status is Status.PASSED


def test_a_mismatch_fails_its_check() -> None:
    of_ck = build_record(CK).as_bytes().decode()
    cases: list[tuple[str, dict[str, Any], TorchPython, str]] = [
        ("files", {"record_mismatches": ("a.py was changed",)}, MI300X, "a.py was changed"),  # a file changed
        ("files", {"record_mismatches": ("a.py was changed", "b.py is gone")}, MI300X, "a.py was changed and 1 more"),
        ("build record", {"record": of_ck}, MI300X, "for rocm64torch2.9, but the version has the label rocm72torch"),
        (
            "build record",
            {"version": "2.8.3"},
            MI300X,
            "for rocm72torch2.13triton, but the version has the label (none",
        ),
        ("build record", {"record": None}, MI300X, "missing or unreadable"),  # no record
        ("build record", {"record": "{}"}, MI300X, "missing or unreadable"),  # damaged record
        ("torch", {}, with_software(MI300X, torch="2.12.1+rocm7.2"), "2.12.1+rocm7.2, requires torch==2.13.*"),  # torch
        ("arch", {}, with_arch("gfx1036"), "gfx1036; supported: gfx90a, gfx942"),  # arch
    ]
    for name, changes, python, detail in cases:
        check = found(name, installed(**changes), python)
        assert check.status is Status.FAILED
        assert check.detail.startswith(detail)


def test_a_check_without_its_facts_is_not_run_with_a_reason() -> None:
    cases: list[tuple[str, dict[str, Any], TorchPython | None, bool, str]] = [
        ("files", {"files": None}, MI300X, False, "no RECORD"),  # no RECORD
        ("build record", {"version": "2.8.3", "record": None}, MI300X, False, "not a finished"),  # non_amd_gpu
        ("torch", {}, None, False, "a stand-in torch"),  # a stand-in for torch
        ("torch", {"requires": ("einops",)}, MI300X, False, "requires none"),  # no requirement
        ("ROCm", {}, NO_GPU, False, "not built for ROCm"),  # a CPU torch
        ("ROCm", {"version": "2.8.3"}, MI300X, False, "no label"),  # no label
        ("ROCm", {}, H200, True, "not an AMD GPU"),  # ROCm in the test mode
        ("arch", {}, H200, True, "not an AMD GPU"),  # arch in the test mode
        ("arch", {}, NO_GPU, False, "no AMD GPU"),  # no GPU
        ("arch", {"record": None}, MI300X, False, "no build record"),  # no archs promised
    ]
    for name, changes, python, non_amd_gpu, why in cases:
        check = found(name, installed(**changes), python, non_amd_gpu=non_amd_gpu)
        assert check.status is Status.NOT_RUN
        assert why in check.detail
    assert found("torch", installed(), H200, non_amd_gpu=True).status is Status.PASSED, "its version counts"


def test_the_backend_that_was_called_is_that_of_the_label() -> None:
    check = called("backend", installed(CK), numbers(Backend.TRITON))
    assert check.status is Status.FAILED
    assert check.detail == (
        f"called {TRITON_MODULE} instead of flash_attn_2_cuda: is FLASH_ATTENTION_TRITON_AMD_ENABLE set?"
    )
    nothing = called("backend", installed(), numbers(call_counts={}))
    assert (nothing.status, nothing.detail.partition(" instead")[0]) == (Status.FAILED, "called nothing")
    unlabelled = called("backend", installed(version="2.8.3"), numbers())
    assert unlabelled.status is Status.NOT_RUN
    assert unlabelled.detail.endswith(f"called: {TRITON_MODULE}")


def test_a_module_of_another_installation_has_failed() -> None:
    check = called("module", installed(), numbers(file="/elsewhere/interface_fa.py"))
    assert check.status is Status.FAILED
    assert "called /elsewhere/interface_fa.py, which this installation does not contain" in check.detail


@pytest.mark.parametrize(("own", "status"), [(True, Status.PASSED), (False, Status.FAILED)])
def test_in_a_second_environment_the_program_reports_the_owner_of_the_module(own: bool, status: Status) -> None:
    report = numbers(file="/elsewhere/interface_fa.py", from_wheel=own)
    *_, check = check_calls(installed(), report, elsewhere=True)
    assert (check.name, check.status) == ("module", status)


@pytest.mark.parametrize("name", ["backend", "module"])
def test_where_nothing_computed_no_call_is_judged(name: str) -> None:
    assert called(name, installed(), None).status is Status.NOT_RUN


def test_the_backend_is_known_by_the_label_or_else_by_an_extension() -> None:
    cases: list[tuple[InstalledPackage, Backend | None]] = [
        (installed(CK), Backend.CK),  # label of CK
        (installed(TRITON, files=(FILES[Backend.CK],)), Backend.TRITON),  # the label decides
        (installed(TRITON, version="2.8.3"), Backend.TRITON),  # no label and no extension
        (installed(TRITON, version="2.8.3", files=(FILES[Backend.CK],)), Backend.CK),  # an extension
        (fallback(), None),  # the fallback
    ]
    for package, backend in cases:
        assert package.backend is backend


def test_the_sha256_comes_from_direct_url_json() -> None:
    cases: list[tuple[str | None, str | None]] = [
        (None, None),
        ('{"url": "file:///w.whl", "archive_info": {"hashes": {"sha256": "%s"}}}' % ("a" * 64), "a" * 64),
        ('{"url": "file:///src", "dir_info": {"editable": true}}', None),
        ('{"archive_info": {"hashes": {"sha256": "short"}}}', None),
        ('{"archive_info": {"hashes": {"sha256": 5}}}', None),
        ("no JSON", None),
    ]
    for noted, sha256 in cases:
        assert installed(direct_url=noted).as_validated().sha256 == sha256


# -- a preview, whose kernels are in aiter

KERNEL_FILE = f"{SITE}/aiter/ops/triton/_triton_kernels/flash_attn_triton_amd/interface_v2.py"


def with_kernels(version: str, *mismatches: str) -> InstalledPackage:
    """A preview beside this aiter."""
    package = installed(version="2.8.4+rocm72torch2.13tritongit4a948e9")
    kernels = package.distribution.model_copy(
        update={"version": version, "files": (KERNEL_FILE,), "record_mismatches": mismatches}
    )
    return package.model_copy(update={"kernels": kernels})


@pytest.mark.parametrize(
    ("version", "whose"), [("0.0.20260602", "of this factory"), ("0.1.14.post1", "not of this factory")]
)
def test_a_call_of_aiter_names_whose_it_is(version: str, whose: str) -> None:
    calls = {f"{AITER_TOLERANCE.module}.fwd": 2}
    report = numbers(backend=AITER_TOLERANCE.module, file=KERNEL_FILE, call_counts=calls)

    assert called("backend", with_kernels(version), report).status is Status.PASSED
    module = called("module", with_kernels(version), report)
    assert (module.status, module.detail) == (Status.PASSED, f"called a file of amd-aiter {version}, {whose}")
    assert all(case.status is Status.PASSED for case in as_cases(report, (), None))
    changed = called("module", with_kernels(version, "aiter/a.py was changed"), report)
    assert changed.status is Status.FAILED
    assert "changed: aiter/a.py was changed" in changed.detail


GROUPED = KnownLimit("grouped*", flash_attn=">=2", reason="backward with grouped heads")
CACHED = KnownLimit("cached*", flash_attn=">=2", reason="a cache", skip_forward=True)


def only(
    found: rule.NumericCase, backend: Backend = Backend.TRITON, limits: Sequence[KnownLimit] = ()
) -> ValidationCase:
    (made,) = as_cases(numbers(backend, found), limits, None)
    return made


def test_each_result_has_its_error_and_the_bound_of_the_backend() -> None:
    made = only(case(output=(0.001, 0.002), dv=(0.003, 0.004)))
    assert made == ValidationCase(
        name="causal float16",
        status=Status.PASSED,
        errors=(
            ResultError(result="output", error=0.001, bound=0.004),
            ResultError(result="dv", error=0.003, bound=0.012),
        ),
    )
    ck = only(case(output=(0.001, 0.002), dv=(0.003, 0.004)), Backend.CK)
    assert [error.bound for error in ck.errors] == [0.008, 0.04]


def test_results_that_are_not_finite_fail_with_a_reason() -> None:
    """JSON has no NaN."""
    made = only(case(output=(0.001, 0.001), dq=(math.nan, 0.001)))
    assert made.status is Status.FAILED
    assert [error.result for error in made.errors] == ["output"]
    assert made.detail == "dq is off by nan (at most 0.003)"


def test_a_case_without_a_result_has_failed_with_its_words() -> None:
    for words in ("OutOfResources: shared memory", None):
        made = only(rule.NumericCase(name="wide float16", errors={}, exception=words))
        assert (made.status, made.detail) == (Status.FAILED, words or "")
    (made,) = as_cases(numbers(backend="some.module"), (), None)
    assert (made.status, made.detail) == (Status.FAILED, "no bound is known for some.module")


def test_cases_excluded_by_a_limit_are_not_run_with_its_reason() -> None:
    found = numbers(Backend.TRITON, case(), left_out=("cached full float16",))
    made = list(as_cases(found, (GROUPED, CACHED), None))
    assert [(one.name, one.status) for one in made] == [
        ("causal float16", Status.PASSED),
        ("cached full float16", Status.NOT_RUN),
    ]
    assert made[1].detail == "skipped: a cache"


def test_a_case_without_a_backward_pass_has_the_reason() -> None:
    made = only(case("grouped causal float16", output=(0.001, 0.001)), limits=(GROUPED, CACHED))
    assert (made.status, made.detail) == (Status.PASSED, "skipped: backward with grouped heads")
