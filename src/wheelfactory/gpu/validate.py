"""Validate an installed package, or a wheel in a temporary environment."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from datetime import datetime, timezone
from pathlib import Path

from wheelfactory.build.environments import clean_environ, find_base, make_build_environment, open_wheel_environment
from wheelfactory.build.products import make_products
from wheelfactory.core.errors import BuildError, InputError
from wheelfactory.core.files import factory_version, file_sha256, scratch_dir
from wheelfactory.core.label import Label
from wheelfactory.gpu.checks import check_calls, check_installed
from wheelfactory.gpu.compute import ComputeResult, ValidationContext, compute_cases
from wheelfactory.gpu.installed import PROJECTS, InstalledPackage, read_installed
from wheelfactory.gpu.torch_python import TorchPython, find_torch_python
from wheelfactory.gpu.validation_report import VALIDATION_FORMAT, Validation
from wheelfactory.matrix.facts import Context
from wheelfactory.verify.proofs import device_environ
from wheelfactory.wheel.read import Wheel


def validate(
    path: Path | None, requested_python: str | None, *, non_amd_gpu: bool, emulated_arch: str | None, context: Context
) -> Validation:
    """Validate the wheel at `path`, or the installed package if `path` is None.

    `requested_python` defaults to the user's Python. With `non_amd_gpu`, a Triton wheel runs on a non-AMD GPU in a test
    mode; with `emulated_arch`, on an emulator of that arch. For a wheel, a CPU torch stands in if the machine has none.
    Raises `InputError` if there is nothing to validate, or if the package cannot run with this Python and GPU.
    """
    wheel = Wheel.open(path) if path else None
    if wheel and wheel.name not in PROJECTS:
        raise InputError("cannot validate this wheel", wheel.path.name, f"name a wheel of {' or '.join(PROJECTS)}")
    python, stand_in = _choose_python(wheel, requested_python, context)
    with scratch_dir(context.cache) as scratch, _open_interpreter(wheel, python, context) as interpreter:
        installed = read_installed(interpreter, device_environ(context.environ))
        validation_context = ValidationContext(context, interpreter, python, scratch, wheel, non_amd_gpu, emulated_arch)
        computed = compute_cases(installed, validation_context)
    python_to_match = None if stand_in or computed.used_stand_in_torch else python
    return _report(wheel, installed, python_to_match, computed, non_amd_gpu=non_amd_gpu)


def _report(
    wheel: Wheel | None,
    installed: InstalledPackage,
    python: TorchPython | None,
    computed: ComputeResult,
    *,
    non_amd_gpu: bool,
) -> Validation:
    """The report, with the checks of what is installed; `python` is None if its torch is only a stand-in."""
    numbers = computed.numbers
    named = {"filename": wheel.path.name, "sha256": file_sha256(wheel.path)} if wheel else {}
    dropped = numbers.dropped if numbers else ()
    return Validation(
        format=VALIDATION_FORMAT,
        factory=factory_version(),
        time=datetime.now(timezone.utc),
        validated=installed.as_validated().model_copy(update=named),
        hardware=computed.hardware,
        software=computed.software,
        dropped_launch_options=dropped if non_amd_gpu else None,
        symbols=numbers.call_counts if numbers else {},
        checks=(
            *check_installed(installed, python, non_amd_gpu=non_amd_gpu),
            *check_calls(installed, numbers, elsewhere=computed.used_stand_in_torch),
            *computed.checks,
        ),
        cases=computed.cases,
    )


def _choose_python(wheel: Wheel | None, requested_python: str | None, context: Context) -> tuple[TorchPython, bool]:
    """Return the Python to run in, and whether its torch is only a stand-in for ROCm's."""
    try:
        return find_torch_python(requested_python, context.environ), False
    except InputError:
        if requested_python or not wheel:
            raise
        own = make_build_environment(context.cache)
        return find_torch_python(str(own.python), clean_environ(context.environ)), True


def _build_required_products(wheel: Wheel, context: Context) -> tuple[Path, ...]:
    """Build the products that `wheel` requires. Raises `SourceError` or `BuildError` if one cannot be built."""
    local = wheel.version.local
    with suppress(InputError):  # the label of another builder requires none
        return make_products(Label.parse(local).requires, context) if local else ()
    return ()


@contextmanager
def _open_interpreter(wheel: Wheel | None, python: TorchPython, context: Context) -> Iterator[Path]:
    """Yield the Python that has the package.

    Either that of `python`, or one of a temporary environment layered on it, with the wheel and what it requires.
    """
    if wheel is None:
        yield python.python
        return
    products = _build_required_products(wheel, context)
    base = find_base(python.python, python.software.python, context.environ)
    with ExitStack() as stack:
        try:
            environment = stack.enter_context(open_wheel_environment(context.cache, base, wheel.path, *products))
        except BuildError as error:
            reason = error.which.splitlines()[-1]
            system = f", on a system with glibc {wheel.glibc} or newer" if wheel.glibc else ""
            hint = f"use --python to name a Python that matches the wheel{system}"
            which = f"{wheel.path.name} for {python.python} ({reason})"
            raise InputError("cannot install the wheel", which, hint) from None
        yield environment.python
