"""`wheelfactory validate` with real wheels, pip, torch, Triton and the emulator, on a machine without a GPU."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from fnmatch import fnmatchcase
from pathlib import Path

import pytest

from command_line import Cli
from shared_folder import file_lock, share_triton_cache
from wheel_factory import CK, TRITON, build_record, finished_wheel, make_wheel, metadata_text
from wheelfactory.build.environments import (
    Environment,
    make_build_environment,
    make_empty_environment,
    make_layered_environment,
    make_numpy_environment,
    make_triton_environment,
    pip_install,
)
from wheelfactory.core.errors import BAD_INPUT, DONE, VERIFICATION_FAILED, InputError
from wheelfactory.core.files import ROOT, file_sha256
from wheelfactory.gpu import compute, validate
from wheelfactory.gpu.installed import InstalledPackage, read_installed
from wheelfactory.gpu.torch_python import TorchPython
from wheelfactory.gpu.validation_report import Hardware, Software, Validation
from wheelfactory.verify import emulation
from wheelfactory.verify.accuracy import KnownLimit
from wheelfactory.verify.programs.attention_cases import SMALL
from wheelfactory.verify.result import Status

pytestmark = pytest.mark.slow

KERNELS = "flash_attn/flash_attn_triton_amd"
PACKAGE = ROOT / "packages/flash_attention_amd/src"


@pytest.fixture(scope="module")
def torch(cache: Path) -> Environment:
    with file_lock(cache, "environments"):
        return make_build_environment(cache)


@pytest.fixture
def own_cache(cache: Path, tmp_path: Path, torch: Environment) -> Path:
    """The cache with environments, without proofs."""
    folder = tmp_path / "cache"
    folder.mkdir()
    with file_lock(cache, "environments"):
        made = (torch, make_triton_environment(cache, "3.7.1"), make_numpy_environment(cache))
    for environment in made:
        (folder / environment.folder.name).symlink_to(environment.folder)
    return folder


NOT_ASKED = tuple(
    f"{case.name} {dtype}"
    for case in SMALL
    if case.name not in ("full", "cached")
    for dtype in ("float16", "bfloat16", "float32")
)
"""Leaves a case of each kind; the gate's own tests run all of them, which takes long."""


@pytest.fixture
def short_suite(monkeypatch: pytest.MonkeyPatch) -> None:
    """The known limits of the release cover most of the suite."""
    limits = tuple(
        KnownLimit(cases, flash_attn=">=2", reason="what takes long", skip_forward=True) for cases in NOT_ASKED
    )
    monkeypatch.setattr(compute, "find_cell_limits", lambda *_: limits)
    monkeypatch.setattr(emulation, "find_cell_limits", lambda *_: limits)
    monkeypatch.setattr(compute, "find_limits", lambda *_: limits)


@pytest.fixture(autouse=True)
def _compile_once(triton_cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    share_triton_cache(triton_cache, monkeypatch)


def cases(found: Validation, status: Status) -> set[str]:
    return {case.name for case in found.cases if case.status is status}


@pytest.mark.usefixtures("short_suite")
def test_a_wheel_with_a_wrong_kernel_is_refused_with_case_error_and_bound(
    cli: Cli, tmp_path: Path, own_cache: Path, torch: Environment, upstream: Mapping[str, bytes]
) -> None:
    """As the emulator executes it, in the environment of the slow gate."""
    name, good, bad = f"{KERNELS}/fwd_decode.py", b"< hi - start_n", b"< hi - 1 - start_n"
    assert good in upstream[name]
    wheel = finished_wheel(tmp_path, TRITON, members={**upstream, name: upstream[name].replace(good, bad)})
    done = cli("validate", wheel, "--json", "--python", torch.python, "--cache", own_cache)

    assert done.code == VERIFICATION_FAILED, done.err
    found = Validation.model_validate_json(done.out)
    assert cases(found, Status.FAILED) == {"cached float16"}
    assert cases(found, Status.PASSED) == {"full float16"}
    (error,) = next(case.errors for case in found.cases if case.name == "cached float16")
    assert error.result == "output"
    assert 0 < error.bound < 0.001 < error.error
    assert (found.validated.filename, found.validated.sha256) == (wheel.name, file_sha256(wheel))
    assert found.validated.cell == TRITON.id
    assert found.hardware == Hardware()
    assert (found.software.torch, found.software.triton) == ("2.13.0+cpu", "3.7.1")
    checks = {check.name: check.status for check in found.checks}
    right = ("files", "backend", "module", "emulation")
    assert {name: checks[name] for name in right} == dict.fromkeys(right, Status.PASSED)
    assert (checks["torch"], checks["GPU"]) == (Status.NOT_RUN,) * 2


@pytest.fixture(scope="module")
def installed(
    cache: Path, torch: Environment, triton_wheel: Path, tmp_path_factory: pytest.TempPathFactory
) -> Environment:
    """A Python that has torch, Triton, numpy and the wheel, as a user's."""
    with file_lock(cache, "environments"):
        more = (make_triton_environment(cache, "3.7.1"), make_numpy_environment(cache))
    layers = [torch.site_packages, *(layer.site_packages for layer in more)]
    made = make_layered_environment(tmp_path_factory.mktemp("user") / "env", torch.python, torch.version, layers)
    pip_install(made, "--no-deps", "--no-index", triton_wheel)
    return made


@pytest.mark.usefixtures("short_suite")
def test_an_installed_package_is_executed_for_the_arch_that_is_named(
    cli: Cli, tmp_path: Path, installed: Environment, triton_wheel: Path
) -> None:
    command = ("validate", "installed", "--json", "--emulate", "gfx1100")
    done = cli(*command, "--python", installed.python, "--cache", tmp_path / "cache")

    assert done.code == DONE, done.out
    found = Validation.model_validate_json(done.out)
    assert found.validated.version == "2.8.3+rocm72torch2.13triton"
    assert found.validated.sha256 == file_sha256(triton_wheel)  # as pip noted it
    assert cases(found, Status.PASSED) == {"full float16", "cached float16"}
    assert all(0 < error.error <= error.bound < 0.02 for case in found.cases for error in case.errors)
    assert {case.detail for case in found.cases if case.status is Status.NOT_RUN} == {"skipped: what takes long"}
    module = f"{KERNELS.replace('/', '.')}.interface_fa"
    assert found.symbols == dict.fromkeys((f"{module}.fwd", f"{module}.bwd", f"{module}.fwd_kvcache"), 1)
    checks = {check.name: check.status for check in found.checks}
    passed = ("files", "build record", "torch", "backend", "module", "emulation")
    assert {name: checks[name] for name in passed} == dict.fromkeys(passed, Status.PASSED)
    (detail,) = (check.detail for check in found.checks if check.name == "emulation")
    assert detail.startswith("executed in emulation for gfx1100: attn_fwd ")
    assert "; _bwd_preprocess " in detail


@pytest.fixture
def wrong_fallback(tmp_path: Path) -> Path:
    """A wheel of the fallback that returns the wrong sign with a KV cache, and does not update the cache."""
    members = {
        path.relative_to(PACKAGE).as_posix(): path.read_bytes()
        for path in (PACKAGE / "flash_attention_amd").rglob("*.py")
    }
    members["flash_attention_amd/__init__.py"] += (
        b"\n_right = flash_attn_with_kvcache\n\n"
        b"def flash_attn_with_kvcache(queries, keys, values, k=None, **options):\n"
        b"    if k is None:\n        return -_right(queries, keys, values, **options)\n"
        b"    return _right(queries, keys.clone(), values.clone(), k=k, **options)\n"
    )
    metadata = metadata_text("0.1.0", name="flash-attention-amd", requires=["torch>=2.5"])
    return make_wheel(tmp_path, name="flash_attention_amd", version="0.1.0", metadata=metadata, members=members)


def test_a_fallback_with_a_wrong_sign_is_refused(
    cli: Cli, own_cache: Path, wrong_fallback: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The full suite on the CPU with a real torch, without most of what takes long; correct results pass."""
    ask, long = compute._ask, ("long*", "dim 1*", "dim 9*", "packed*")
    monkeypatch.setattr(compute, "_ask", lambda *given: ask(*given, *(f"!{cases}" for cases in long)))
    monkeypatch.setenv("PATH", "")  # so the user's Python is the factory's own, which has no torch
    monkeypatch.delenv("VIRTUAL_ENV", raising=False)
    done = cli("validate", wrong_fallback, "--json", "--cache", own_cache)

    assert done.code == VERIFICATION_FAILED, done.err
    found = Validation.model_validate_json(done.out)
    left_out = {case.name for case in found.cases if any(fnmatchcase(case.name, pattern) for pattern in long)}
    assert left_out == cases(found, Status.NOT_RUN)
    assert left_out.isdisjoint(cases(found, Status.PASSED))
    wrong = cases(found, Status.FAILED)
    cached = {case.name for case in found.cases if "cache" in case.name}
    assert cached - {name for name in cached if name.startswith("empty cache")} <= wrong
    unwritten = {case.detail for case in found.cases if "appended" in case.name}
    assert unwritten == {"ValueError: the appended keys and values are not in the cache"}
    assert {"dim 256 causal float16", "grouped in one causal bfloat16"} <= cases(found, Status.PASSED)
    assert found.hardware == Hardware()
    assert found.validated.project == "flash-attention-amd"
    assert {check.name: check.status for check in found.checks}["torch"] is Status.NOT_RUN


def test_a_wheel_that_does_not_fit_the_python_is_refused(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The Python is not queried for its torch, which takes seconds."""
    version = f"{sys.version_info[0]}.{sys.version_info[1]}"
    python = TorchPython(Path(sys.executable), Software(python=version, torch="2.9.1"))
    monkeypatch.setattr(validate, "find_torch_python", lambda given, environ: python)
    wheel = finished_wheel(tmp_path, CK, tags="cp27-cp27mu-manylinux_2_28_x86_64")
    done = cli("validate", wheel, "--cache", tmp_path / "cache")
    assert done.code == BAD_INPUT
    assert f"cannot install the wheel: {wheel.name} for {sys.executable}" in done.err
    assert "name a Python that matches the wheel, on a system with glibc 2.28 or newer\n" in done.err


def read(python: Environment) -> InstalledPackage:
    return read_installed(python.python, {})


def test_files_are_compared_with_record_and_direct_url_is_read(tmp_path: Path) -> None:
    python = make_empty_environment(tmp_path / "env")
    with pytest.raises(InputError, match="no flash-attn") as caught:
        read(python)
    assert "has neither flash-attn nor flash-attention-amd" in caught.value.which

    metadata = metadata_text("0.1.0", name="flash-attention-amd")
    other = make_wheel(tmp_path, name="flash_attention_amd", version="0.1.0", metadata=metadata)
    pip_install(python, "--no-deps", "--no-index", other)
    assert read(python).project == "flash-attention-amd"

    wheel = finished_wheel(tmp_path, TRITON)
    pip_install(python, "--no-deps", "--no-index", wheel)
    found = read(python)
    assert (found.project, found.has_numpy, found.distribution.record_mismatches) == ("flash-attn", False, ())
    assert found.record == build_record(TRITON)
    assert found.as_validated().sha256 == file_sha256(wheel)

    (python.site_packages / "flash_attn/flash_attn_interface.py").write_text("def flash_attn_func(): return 1\n")
    (python.site_packages / "flash_attn/__init__.py").unlink()
    assert set(read(python).distribution.record_mismatches) == {
        "flash_attn/flash_attn_interface.py was changed",
        "flash_attn/__init__.py is missing",
    }
