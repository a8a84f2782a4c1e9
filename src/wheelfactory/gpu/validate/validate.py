"""What is installed, or a wheel installed for the while, in; what it is and what it computed out."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from datetime import datetime, timezone
from pathlib import Path

from wheelfactory.build.clean_environ import clean_environ
from wheelfactory.build.environments import find_package_folders, make_build_environment, open_wheel_environment
from wheelfactory.core.checkout import factory_version
from wheelfactory.core.digest import file_sha256
from wheelfactory.core.errors import BuildError, InputError
from wheelfactory.core.files import scratch_dir
from wheelfactory.core.host import Host
from wheelfactory.gpu.torch_python import TorchPython, find_torch_python
from wheelfactory.gpu.validate.checks import check_calls, check_installed
from wheelfactory.gpu.validate.compute import ValidationContext, compute_cases
from wheelfactory.gpu.validate.installed import PROJECTS, read_installed
from wheelfactory.gpu.validate.report import VALIDATION_FORMAT, Validation
from wheelfactory.matrix.facts import Matrix
from wheelfactory.verify.proofs import HasPython, device_environ
from wheelfactory.wheel.read import Wheel


def validate(
    path: Path | None,
    requested_python: str | None,
    *,
    non_amd_gpu: bool,
    matrix: Matrix,
    host: Host,
    environ: Mapping[str, str],
    cache: Path,
) -> Validation:
    """Run a wheel, or what is installed if `path` is None, with the Python `given` or else the user's.

    With `foreign` the kernels of a Triton wheel run on the GPU of another vendor. A wheel is validated without any
    torch at hand too: a CPU torch stands in. Raises `InputError` if there is nothing to validate, or not in this way.
    """
    wheel = Wheel.open(path) if path else None
    if wheel and wheel.name not in PROJECTS:
        raise InputError("no attention to validate", wheel.path.name, f"name a wheel of {' or '.join(PROJECTS)}")
    python, stand_in = _python(wheel, requested_python, environ, cache)
    with scratch_dir(cache) as scratch, _installed(wheel, python, environ, cache) as interpreter:
        installed = read_installed(interpreter, device_environ(environ))
        computed = compute_cases(
            installed, ValidationContext(interpreter, python, scratch, matrix, host, environ, cache, wheel, non_amd_gpu)
        )
    fitting = None if stand_in or computed.used_stand_in_torch else python
    checks = (
        *check_installed(installed, fitting, non_amd_gpu=non_amd_gpu),
        *check_calls(installed, computed.numbers, elsewhere=computed.used_stand_in_torch),
        *computed.checks,
    )
    said, numbers = installed.as_validated(), computed.numbers
    named = {"filename": wheel.path.name, "sha256": file_sha256(wheel.path)} if wheel else {}
    dropped = numbers.dropped if numbers else ()
    return Validation(
        format=VALIDATION_FORMAT,
        factory=factory_version(),
        time=datetime.now(timezone.utc),
        validated=said.model_copy(update=named),
        hardware=computed.hardware,
        software=computed.software,
        dropped_launch_options=dropped if non_amd_gpu else None,
        symbols=numbers.symbols if numbers else {},
        checks=checks,
        cases=computed.cases,
    )


def _python(
    wheel: Wheel | None, given: str | None, environ: Mapping[str, str], cache: Path
) -> tuple[TorchPython, bool]:
    """The Python to run in, and whether it only stands in for one with the torch that the wheel is for."""
    try:
        return find_torch_python(given, environ), False
    except InputError:
        if given or not wheel:
            raise
        own = make_build_environment(cache)
        return find_torch_python(str(own.python), clean_environ(environ)), True


@contextmanager
def _installed(
    wheel: Wheel | None, python: TorchPython, environ: Mapping[str, str], cache: Path
) -> Iterator[HasPython]:
    """What has the package: the Python itself, or an environment over it with the wheel, gone afterwards."""
    if wheel is None:
        yield python
        return
    layers = find_package_folders(python.python, clean_environ(environ))
    with ExitStack() as stack:
        try:
            environment = stack.enter_context(
                open_wheel_environment(cache, wheel.path, python.python, python.version, layers)
            )
        except BuildError as error:
            said = error.which.splitlines()[-1]
            hint = "name the Python that it is for with --python"
            raise InputError("cannot be installed", f"{wheel.path.name} for {python.python} ({said})", hint) from None
        yield environment
