"""What the doctor reads from an installed flash-attn, and how it survives a failing import."""

from __future__ import annotations

import subprocess
import time
from pathlib import Path

import pytest

from code_object_bytes import code_object
from doctor.known import PROBE_TEXT, WRITTEN
from doctor_installs import CK_RECORD, CK_VERSION, EINOPS, MODULE, PACKAGE, TORCH_MODULE, Site, ck_site, good_module
from elf_factory import hip_bundle, library, packed, section
from pythons import find_python
from wheel_factory import CK, finished_wheel
from wheelfactory.build.environments import make_empty_environment, pip_install
from wheelfactory.core.query import Interpreter
from wheelfactory.doctor.installed_flash_attn import find_import_error, read_extension_code, read_flash_attn

SOURCES = Path(__file__).parents[2] / "src"


@pytest.mark.slow
def test_a_wheel_that_pip_installed(tmp_path: Path) -> None:
    environment = make_empty_environment(tmp_path / "env")
    Site(environment.site_packages, environment.python).add(TORCH_MODULE)
    wheel = finished_wheel(tmp_path, CK, members={**PACKAGE, MODULE: good_module("gfx942")}, tags="py3-none-any")
    pip_install(environment, "--no-deps", "--no-index", wheel)
    found = read_flash_attn(Interpreter([str(environment.python)], {}), PROBE_TEXT)
    assert found
    assert found.version == CK_VERSION
    assert found.location == str(environment.site_packages)
    assert found.requires == ("einops", "torch==2.9.*")
    assert found.build_record["cell"] == CK.id
    assert found.extension == str(environment.site_packages / MODULE)
    assert found.extension_archs == ("gfx942",)
    assert (found.stray_modules, found.other_installs, found.missing_requirements) == ((), (), ("einops",))
    assert (found.has_triton_backend, found.shadowing_dir, found.error) == (True, "", "")


FINDER = """
import sys
from importlib.machinery import PathFinder
class Finder:
    find_spec = staticmethod(lambda name, *_: PathFinder.find_spec(name, [{folder!r}]))
sys.meta_path.append(Finder)
"""


@pytest.mark.parametrize(
    "files",
    [
        pytest.param({"editable.pth": "{folder}\n"}, id="by a path"),
        pytest.param({"finder.py": FINDER, "finder.pth": "import finder\n"}, id="by a finder"),
    ],
)
def test_an_editable_install(tmp_path: Path, bare_python: Path, files: dict[str, str]) -> None:
    """As setuptools creates it: site-packages holds the metadata and what finds the checkout, which has the rest.

    For packages at the top of the project, like flash-attn's, it is a finder.
    """
    checkout = Site(tmp_path / "checkout", bare_python).add({**PACKAGE, MODULE: good_module("gfx1100")})
    environment = make_empty_environment(tmp_path / "env")
    site = Site(environment.site_packages, environment.python).add({**TORCH_MODULE, **EINOPS})
    record = "".join(f"{name},,\n" for name in files).encode()
    info = "flash_attn-2.8.3.dist-info"
    site.add({f"{info}/METADATA": b"Name: flash_attn\nVersion: 2.8.3\n", f"{info}/RECORD": record})
    site.add({name: text.format(folder=str(checkout.folder)).encode() for name, text in files.items()})
    found = read_flash_attn(Interpreter([str(environment.python)], {}), PROBE_TEXT)
    assert found
    assert (found.location, found.extension) == (str(checkout.folder), str(checkout.folder / MODULE))
    assert (found.stray_modules, found.error) == ((), "")


@pytest.mark.parametrize("files", [{}, {"SOURCES.txt": b"setup.py\nflash_attn/__init__.py\n"}], ids=["bare", "sources"])
@pytest.mark.parametrize(
    ("folder", "info"),
    [("flash_attn-2.8.3-py3-linux-x86_64.egg", "EGG-INFO"), ("checkout", "flash_attn.egg-info")],
    ids=["install", "develop"],
)
def test_an_egg_owns_its_module(
    tmp_path: Path, bare_python: Path, folder: str, info: str, files: dict[str, bytes]
) -> None:
    """An egg has no RECORD; the sources that it can list are not the installed files."""
    egg = Site(tmp_path / folder, bare_python).add({**PACKAGE, MODULE: good_module("gfx942")})
    egg.add({f"{info}/PKG-INFO": b"Name: flash-attn\nVersion: 2.8.3\n", **{f"{info}/{n}": f for n, f in files.items()}})
    egg.add({**TORCH_MODULE, **EINOPS})
    found = egg.read()
    assert (found.version, found.extension, found.stray_modules) == ("2.8.3", str(egg.folder / MODULE), ())
    assert (found.extension_archs, found.error) == (("gfx942",), "")


def test_only_unconditional_requirements_can_be_missing(site: Site) -> None:
    requires = ("einops", "Typing_Extensions>=4", 'ninja; extra == "dev"', "torch==2.9.*")
    assert ck_site(site, good_module("gfx942"), requires=requires).read().missing_requirements == ("Typing_Extensions",)


def test_a_directory_on_the_path_twice_is_one_install(site: Site, tmp_path: Path) -> None:
    """In an environment, lib64 is a link to lib."""
    ck_site(site, good_module("gfx942"))
    (tmp_path / "link").symlink_to(site.folder)
    found = site.with_settings(PYTHONPATH=f"{site.folder}:{tmp_path / 'link'}").read()
    assert (found.other_installs, found.stray_modules, found.error) == ((), (), "")


def test_no_flash_attn_or_no_python(bare_python: Path, tmp_path: Path) -> None:
    assert read_flash_attn(Interpreter([str(bare_python)], {}), PROBE_TEXT) is None
    assert read_flash_attn(Interpreter([str(tmp_path / "python")], {}), PROBE_TEXT) is None


@pytest.mark.parametrize("record", [b"{", b"[1]", b"\xff\xfe", b'{"toolchain": "none", "offload_archs": 3}'])
def test_an_invalid_build_record_is_ignored(site: Site, record: bytes) -> None:
    found = ck_site(site, good_module("gfx942"), record=record).read()
    assert found.version == CK_VERSION
    assert found.build_record == ({"toolchain": "none", "offload_archs": 3} if record.startswith(b'{"') else {})


def test_a_hanging_import_is_killed(site: Site) -> None:
    ck_site(site, good_module("gfx942"))
    (site.folder / "flash_attn/__init__.py").write_text("import time\ntime.sleep(300)\n")
    start = time.monotonic()
    assert site.read(seconds=1).error == "no answer within 1 s"
    assert time.monotonic() - start < 200  # it would take 300


@pytest.mark.parametrize(
    ("init", "error"),
    [
        pytest.param(b"print('answer: not this', end='')", "", id="prints"),
        pytest.param(b"raise SystemExit(0)", "SystemExit: 0", id="ends"),
        pytest.param(b"import os; os._exit(0)", "the process ended without output", id="ends at once"),
        pytest.param(b"import os; os.abort()", "killed by SIGABRT", id="aborts"),
        pytest.param(b"import atexit, os; atexit.register(os._exit, 3)", "", id="fails at its end"),
        pytest.param(b"raise ImportError('x' * 9000)", "ImportError: " + "x" * 1987, id="says much"),
    ],
)
def test_the_outcome_of_an_import(site: Site, init: bytes, error: str) -> None:
    site.add({"flash_attn/__init__.py": init, "flash_attn/flash_attn_interface.py": b"flash_attn_func = None\n"})
    assert find_import_error(Interpreter([str(site.python)], site.environ), PROBE_TEXT) == error


def test_the_working_directory_is_not_imported_from_and_that_of_the_install_shadows_nothing(
    site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ck_site(site, good_module("gfx942"))
    (tmp_path / "flash_attn").mkdir()
    (tmp_path / "flash_attn/__init__.py").write_text("raise ImportError('of the checkout')")
    monkeypatch.chdir(tmp_path)
    found = site.read()
    assert (found.error, found.location, found.shadowing_dir) == ("", str(site.folder), str(tmp_path))
    monkeypatch.chdir(site.folder)
    assert site.read().shadowing_dir == ""


@pytest.mark.slow
@pytest.mark.parametrize("minor", range(9, 15))
def test_every_python_examines_itself(site: Site, minor: int) -> None:
    """The doctor runs in each Python, because it needs only Python 3.9 and the standard library."""
    python = find_python(minor)
    if python is None:
        pytest.skip(f"no Python 3.{minor} on this machine")
    name = subprocess.run(
        [python, "-c", "import sysconfig; print(sysconfig.get_config_var('EXT_SUFFIX'), end='')"],
        capture_output=True, text=True, check=True,
    ).stdout  # fmt: skip
    module = library(undefined=("_ZN3c105checkEv",), defined=("PyInit_flash_attn_2_cuda",))
    ck_site(site, module, name=f"flash_attn_2_cuda{name}", record=CK_RECORD)
    code = f"""
import os, sys
sys.path.insert(0, {str(SOURCES)!r})
from wheelfactory.core.query import Interpreter
from wheelfactory.doctor.diagnose import diagnose_machine
from wheelfactory.doctor.facts import DoctorFacts
from wheelfactory.doctor.installed_flash_attn import read_flash_attn
from wheelfactory.doctor.machine import InstalledTorch, Machine, Python
installed = read_flash_attn(Interpreter([sys.executable], os.environ), {PROBE_TEXT!r})
machine = Machine(Python(sys.executable, "3", "cp3"), InstalledTorch("2.10.0", hip="6.4.1"), installed)
for found in diagnose_machine(machine, DoctorFacts.parse({WRITTEN!r})):
    print(found.name, found.what)
"""
    done = subprocess.run([python, "-B", "-c", code], env=site.environ, capture_output=True, text=True)
    assert done.stderr == ""
    assert done.stdout.startswith(
        f"torch mismatch flash-attn {CK_VERSION} was built for torch 2.9 (from its build record"
    )


# archs


def archs_in(folder: Path, data: bytes) -> tuple[str, ...]:
    path = folder / "module.so"
    path.write_bytes(data)
    return read_extension_code(path)[0]


def test_archs_are_read_from_all_bundles_with_code(tmp_path: Path) -> None:
    bundles = section(hip_bundle("gfx90a:xnack-", "gfx942"), hip_bundle("gfx1100", objects={"gfx1201": b""}))
    assert archs_in(tmp_path, library(fatbin=bundles)) == ("gfx1100", "gfx90a", "gfx942")
    by_chance = hip_bundle("gfx942") + b"CCOB by chance"  # the magic of a compressed bundle
    assert archs_in(tmp_path, by_chance) == ("gfx942",)


def test_incomplete_information_gives_no_archs(tmp_path: Path) -> None:
    """Hidden code differs from no code for AMD GPUs, and a library from a file that is none."""
    fatbin = section(hip_bundle("gfx942"), packed(hip_bundle("gfx90a")))
    for data, expected in (
        (b"", ((), None)),
        (b"no ELF file", ((), None)),
        (hip_bundle("gfx942")[:40], ((), None)),
        (b"__CLANG_OFFLOAD_BUNDLE__" + b"\xff" * 100, ((), None)),
        (code_object("gfx942"), ((), True)),
        (library(), ((), False)),
        (library(fatbin=section(hip_bundle("gfx942"))), (("gfx942",), True)),
        (library(fatbin=section(packed(hip_bundle("gfx942")))), ((), True)),
        (library(fatbin=fatbin), ((), True)),
    ):
        (tmp_path / "module.so").write_bytes(data)
        assert read_extension_code(tmp_path / "module.so") == expected
    (tmp_path / "module.so").unlink()
    assert read_extension_code(tmp_path / "module.so") == ((), None)
