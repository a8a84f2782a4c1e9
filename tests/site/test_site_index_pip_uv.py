"""Real pip (old ones too) and real uv install from a release, served on loopback and as files."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field, replace
from importlib.metadata import version
from pathlib import Path

import pytest
from packaging.version import Version

from loopback import served
from release_factory import PYTHON_TAG, flash_attn_wheel, make_release, stub_wheel
from small_matrix import small_matrix
from wheelfactory.release.directory import DirectoryPublisher, write_pages
from wheelfactory.release.manifest import read_manifest
from wheelfactory.release.transaction import yank
from wheelfactory.site.index import file_install_line, render_index

pytestmark = pytest.mark.slow

Done = subprocess.CompletedProcess[str]
Command = Sequence[str | Path]

PIP: Command = (sys.executable, "-m", "pip")
UV: Command = (sys.executable, "-m", "uv", "pip")

CELLS = (
    f"fa2.8.3-rocm6.4-torch2.9.1-{PYTHON_TAG}-ck",
    "fa2.8.3-rocm6.4-torch2.9.1-py3-triton",
    f"fa2.8.3-rocm6.4-torch2.8.0-{PYTHON_TAG}-ck",
    f"fa2.8.3-rocm7.2-torch2.9.1-{PYTHON_TAG}-ck",
    "fa2.8.3-rocm7.14-torch2.14.1-py3-triton",
    f"fa2.8.3-rocm6.4-torch2.9.1amd-{PYTHON_TAG}-ck",
    f"fa2.8.4+git4a948e9-rocm6.4-torch2.9.1-{PYTHON_TAG}-ck",
)
"""What the release has, with einops and the fallbacks. The last is a preview, newer than all others; it and the
wheel for AMD's own torch are in indexes of their own."""

CK_INDEX = "rocm64/torch2.9/ck"
CK_VERSION = "2.8.3+rocm64torch2.9"
CK_FILE = f"flash_attn-{CK_VERSION}-1-{PYTHON_TAG}-{PYTHON_TAG}-manylinux_2_28_x86_64.whl"
FALLBACK_VERSION = "2.6.3+fallback"
TORCHES = ("2.9.1+rocm6.4", "2.8.0+rocm6.4", "2.14.1+rocm7.14")
OLD_PIPS = ("20.3.4", "22.3.1", "23.1.2")
"""The first with the resolver of today; first and last that refuse a file if its METADATA has the older mark."""


@pytest.fixture(scope="session")
def release(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A release of all `CELLS`; read only."""
    made, folder = tmp_path_factory.mktemp("made"), tmp_path_factory.mktemp("a release+")
    wheels = [flash_attn_wheel(made, cell) for cell in CELLS]
    others = [("einops", "0.8.2"), ("flash_attention_amd", "0.1.0"), ("flash_attn", FALLBACK_VERSION)]
    make_release(folder, [*wheels, *(stub_wheel(made, *other) for other in others)])
    return folder


@pytest.fixture
def own_release(release: Path, tmp_path: Path) -> Path:
    """A copy of the release, to be changed."""
    return shutil.copytree(release, tmp_path / "release")


@dataclass
class Site:
    """A release to install from, and its requests (none are recorded for file: addresses)."""

    url: str
    requests: list[str] = field(default_factory=list)

    def index(self, name: str) -> str:
        """The address of an index."""
        return f"{self.url}/simple/{name}/"


@contextmanager
def installable(folder: Path) -> Iterator[Site]:
    """Serve a release on loopback."""
    with served(folder) as found:
        yield Site(found.url, found.requests)


@pytest.fixture
def site(release: Path) -> Iterator[Site]:
    """The release on loopback."""
    with installable(release) as found:
        yield found


@contextmanager
def as_files(folder: Path) -> Iterator[Site]:
    """A folder that needs no server."""
    yield Site(folder.as_uri())


Serve = Callable[[Path], AbstractContextManager[Site]]


@pytest.fixture(scope="session")
def environments(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, Path]:
    """For each of `TORCHES`, an environment with only that torch, to be copied."""
    folder = tmp_path_factory.mktemp("environments")
    found = {torch: folder / torch for torch in TORCHES}
    for torch, environment in found.items():
        subprocess.run([sys.executable, "-m", "venv", "--without-pip", environment], check=True)
        wheel = stub_wheel(folder, "torch", torch)
        run([*UV, "install", "--python", environment / "bin/python", "--no-index", wheel], folder).check_returncode()
    return found


@dataclass(frozen=True)
class Machine:
    """A user's Python, with torch for ROCm, that installs with one program."""

    python: Path
    command: Command
    """What the arguments of an install follow."""
    folder: Path
    """Its home and caches."""
    variables: Mapping[str, str] = field(default_factory=dict)

    def install(self, *arguments: str) -> Done:
        return run([*self.command, *arguments], self.folder, self.variables)

    def installed(self) -> dict[str, str]:
        """The projects it has, with their versions."""
        code = "import importlib.metadata as m, json; print(json.dumps({d.name: d.version for d in m.distributions()}))"
        found: dict[str, str] = json.loads(run([self.python, "-I", "-c", code], self.folder).stdout)
        return {name.replace("_", "-"): version for name, version in found.items()}

    def freeze(self) -> str:
        done = run([*UV, "freeze", "--python", self.python], self.folder)
        done.check_returncode()
        return done.stdout


def run(command: Command, home: Path, variables: Mapping[str, str] | None = None) -> Done:
    """Run a command without the configuration, caches and proxies of this machine."""
    environ = {
        "PATH": os.environ["PATH"],
        "HOME": str(home),
        "PIP_CONFIG_FILE": os.devnull,
        "PIP_DISABLE_PIP_VERSION_CHECK": "1",
        "UV_NO_CONFIG": "1",
        "UV_CACHE_DIR": str(home / "uv"),
        **(variables or {}),
    }
    return subprocess.run(command, env=environ, capture_output=True, text=True)


NewMachine = Callable[..., Machine]


@pytest.fixture
def new_machine(environments: Mapping[str, Path], tmp_path: Path) -> NewMachine:
    """Makes a machine with pip or uv, and one of `TORCHES`."""

    def new(tool: str, torch: str = TORCHES[0]) -> Machine:
        python = shutil.copytree(environments[torch], tmp_path / "env", symlinks=True) / "bin/python"
        commands = {"pip": (*PIP, "--python", python, "install"), "uv": (*UV, "install", "--python", python)}
        return Machine(python, commands[tool], tmp_path)

    return new


@pytest.fixture(params=["pip", "uv"])
def tool(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def machine(new_machine: NewMachine, tool: str) -> Machine:
    """A machine with torch 2.9.1+rocm6.4, once with pip and once with uv."""
    return new_machine(tool)


@pytest.mark.parametrize(
    ("index", "torch", "installed"),
    [
        (CK_INDEX, "2.9.1+rocm6.4", CK_VERSION),
        (f"{CK_INDEX}-preview", "2.9.1+rocm6.4", "2.8.4+rocm64torch2.9git4a948e9"),
        ("rocm64/torch2.9/triton", "2.9.1+rocm6.4", "2.8.3+rocm64torch2.9triton"),
        ("rocm64/torch2.8/ck", "2.8.0+rocm6.4", "2.8.3+rocm64torch2.8"),
        ("rocm72/torch2.9/ck", "2.9.1+rocm6.4", "2.8.3+rocm72torch2.9"),
        ("rocm7.14/torch2.14/triton", "2.14.1+rocm7.14", "2.8.3+rocm7.14torch2.14triton"),
    ],
    ids=lambda value: str(value) if "/" in str(value) else "",
)
def test_an_index_gives_the_wheel_of_its_rocm_torch_and_backend(
    new_machine: NewMachine, site: Site, index: str, torch: str, installed: str
) -> None:
    machine = new_machine("uv", torch)
    done = machine.install("--index-url", site.index(index), "flash-attn")
    assert done.returncode == 0, done.stderr
    assert machine.installed() == {"flash-attn": installed, "einops": "0.8.2", "torch": torch}


@pytest.mark.parametrize("serve", [installable, as_files], ids=["http", "file"])
def test_pip_and_uv_install_from_a_server_and_from_a_folder(
    machine: Machine, tool: str, release: Path, serve: Serve
) -> None:
    """METADATA is read before the wheel, which is read once."""
    with serve(release) as site:
        done = machine.install("--index-url", site.index(CK_INDEX), "flash-attn")
    assert done.returncode == 0, done.stderr
    assert machine.installed() == {"flash-attn": CK_VERSION, "einops": "0.8.2", "torch": "2.9.1+rocm6.4"}
    if serve is installable and reads_core_metadata(tool):
        asked = [path for path in site.requests if "flash_attn" in path]
        assert asked == [address(f"{CK_FILE}.metadata"), address(CK_FILE)]


def reads_core_metadata(tool: str) -> bool:
    """Whether a tool reads METADATA before the wheel; pip does since 23.2."""
    return tool == "uv" or Version(version("pip")) >= Version("23.2")


def test_the_index_of_the_fallback_gives_a_flash_attn_without_kernels(machine: Machine, site: Site) -> None:
    done = machine.install("--index-url", site.index("fallback"), "flash-attn", "flash-attention-amd")
    assert done.returncode == 0, done.stderr
    fallbacks = {"flash-attn": FALLBACK_VERSION, "flash-attention-amd": "0.1.0"}
    assert machine.installed() == {**fallbacks, "torch": "2.9.1+rocm6.4"}


def test_with_its_index_and_another_kernels_are_installed(machine: Machine, site: Site) -> None:
    """uv takes the first index with the project, here that of the kernels; or the newest version as pip does."""
    last, first = ("--index-url", site.index("fallback")), ("--extra-index-url", site.index(CK_INDEX))
    done = machine.install(*last, *first, "flash-attn")
    assert done.returncode == 0, done.stderr
    assert machine.installed()["flash-attn"] == CK_VERSION


def test_a_torch_that_does_not_fit_is_kept_and_nothing_is_installed(
    new_machine: NewMachine, tool: str, site: Site
) -> None:
    machine = new_machine(tool, "2.8.0+rocm6.4")
    before = machine.freeze()
    done = machine.install("--index-url", site.index(CK_INDEX), "flash-attn")
    assert done.returncode != 0
    assert "torch==2.9.*" in done.stderr
    assert "Traceback" not in done.stderr
    assert machine.freeze() == before
    assert before.startswith("torch @ ")
    if reads_core_metadata(tool):
        assert address(f"{CK_FILE}.metadata") in site.requests
        assert not [path for path in site.requests if path.endswith(".whl")]


def address(name: str) -> str:
    """The request path of a file."""
    return f"/wheels/{name.replace('+', '%2B')}"


@pytest.mark.parametrize("serve", [installable, as_files], ids=["http", "file"])
def test_a_wheel_with_other_bytes_is_refused(machine: Machine, own_release: Path, serve: Serve) -> None:
    flash_attn_wheel(own_release / "wheels", CELLS[0], content="import evil")
    with serve(own_release) as site:
        done = machine.install("--index-url", site.index(CK_INDEX), "flash-attn")
    assert done.returncode != 0
    assert "hash" in done.stderr.lower()
    assert machine.installed() == {"torch": "2.9.1+rocm6.4"}


def test_metadata_with_other_bytes_is_refused(machine: Machine, tool: str, own_release: Path) -> None:
    """As served: from a folder uv reads the METADATA in the wheel."""
    if not reads_core_metadata(tool):
        pytest.skip(f"pip {version('pip')} does not know data-core-metadata yet")
    metadata = own_release / "wheels" / f"{CK_FILE}.metadata"
    metadata.write_text(metadata.read_text().replace("torch==2.9.*", "torch"))
    with installable(own_release) as site:
        done = machine.install("--index-url", site.index(CK_INDEX), "flash-attn")
    assert done.returncode != 0
    assert "hash" in done.stderr.lower()
    assert machine.installed() == {"torch": "2.9.1+rocm6.4"}


NEWER = f"fa2.8.3.post1-rocm6.4-torch2.9.1-{PYTHON_TAG}-ck"
NEWER_VERSION = "2.8.3.post1+rocm64torch2.9"
REASON = "wrong kernels for <gfx942>"


@pytest.mark.parametrize("yanked", [True, False], ids=["yanked", "lost and found again"])
def test_a_replacement_is_installed_instead_of_what_it_replaces(
    machine: Machine, own_release: Path, tmp_path: Path, yanked: bool
) -> None:
    rows = make_release(own_release, [flash_attn_wheel(tmp_path / "newer", CELLS[0], "again = True", replacement=1)])
    if yanked:
        rows = yank(DirectoryPublisher(own_release), CK_FILE, REASON)
        write_pages(own_release, render_index(rows))
    with installable(own_release) as site:
        done = machine.install("--index-url", site.index(CK_INDEX), f"flash-attn=={CK_VERSION}")
    assert done.returncode == 0, done.stderr
    assert REASON not in done.stderr
    assert source_of(machine) == "again = True"


def source_of(machine: Machine) -> str:
    code = "import flash_attn; print(open(flash_attn.__file__).read())"
    return run([machine.python, "-I", "-c", code], machine.folder).stdout.strip()


def test_a_replacement_of_an_installed_wheel_has_its_version_and_is_installed_with_force(
    machine: Machine, own_release: Path, tmp_path: Path
) -> None:
    with installable(own_release) as site:
        machine.install("--index-url", site.index(CK_INDEX), "flash-attn")
        make_release(own_release, [flash_attn_wheel(tmp_path / "newer", CELLS[0], "again = True", replacement=1)])
        machine.install("--index-url", site.index(CK_INDEX), "--upgrade", "flash-attn")
        assert source_of(machine) == ""
        machine.install("--index-url", site.index(CK_INDEX), "--force-reinstall", "--no-deps", "flash-attn")
    assert source_of(machine) == "again = True"


def test_a_yanked_wheel_is_passed_over_for_an_older_one_and_installs_pinned_with_its_reason(
    machine: Machine, own_release: Path, tmp_path: Path
) -> None:
    wheel = flash_attn_wheel(tmp_path / "newer", NEWER)
    make_release(own_release, [wheel])
    write_pages(own_release, render_index(yank(DirectoryPublisher(own_release), wheel.name, REASON)))
    with installable(own_release) as site:
        done = machine.install("--index-url", site.index(CK_INDEX), "flash-attn")
        assert done.returncode == 0, done.stderr
        assert machine.installed()["flash-attn"] == CK_VERSION
        done = machine.install("--index-url", site.index(CK_INDEX), f"flash-attn=={NEWER_VERSION}")
    assert machine.installed()["flash-attn"] == NEWER_VERSION
    assert REASON in done.stderr


@pytest.fixture(scope="session", params=OLD_PIPS)
def old_pip(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with an old pip, from the package index that this machine is configured for."""
    folder = tmp_path_factory.mktemp("pip")
    requirement = f"pip=={request.param}"
    subprocess.run([*PIP, "install", "--quiet", "--no-deps", "--target", folder, requirement], check=True)
    if run([*PIP, "list"], folder, {"PYTHONPATH": str(folder)}).returncode:
        pytest.skip(f"{requirement} does not run on Python {sys.version_info[0]}.{sys.version_info[1]}")
    return folder


def test_an_old_pip_installs_the_right_wheel(
    old_pip: Path, new_machine: NewMachine, site: Site, tmp_path: Path
) -> None:
    python = new_machine("pip").python
    machine = Machine(python, (python, "-m", "pip", "install"), tmp_path, {"PYTHONPATH": str(old_pip)})
    done = machine.install("--index-url", site.index(CK_INDEX), "flash-attn")
    assert done.returncode == 0, done.stdout + done.stderr
    assert machine.installed() == {"flash-attn": CK_VERSION, "einops": "0.8.2", "torch": "2.9.1+rocm6.4"}


# -- the Triton kernels of a preview: aiter, of AMD's or ours

PREVIEW = "fa2.8.4+git4a948e9-rocm6.4-torch2.9.1-py3-triton"
PREVIEW_INDEX = "rocm64/torch2.9/triton-preview"
PREVIEW_VERSION = "2.8.4+rocm64torch2.9tritongit4a948e9"
OURS = "0.0.20260602"
OF_AMD = ("0.1.14.post1", "0.1.7.post2.dev18", "0.1.dev1")
"""A release on GitHub, the only one on PyPI, and a build from a clone without tags."""


@pytest.fixture
def preview(own_release: Path, tmp_path: Path) -> Path:
    """The release with a preview for Triton and our aiter."""
    wheels = [flash_attn_wheel(tmp_path / "preview", PREVIEW), stub_wheel(tmp_path / "preview", "amd_aiter", OURS)]
    make_release(own_release, wheels)
    return own_release


def aiter_of_amd(folder: Path, version: str) -> str:
    return str(stub_wheel(folder / "amd", "amd_aiter", version))


def install_preview(machine: Machine, preview: Path, *options: str) -> None:
    with installable(preview) as site:
        done = machine.install("--index-url", site.index(PREVIEW_INDEX), *options, "flash-attn")
    assert done.returncode == 0, done.stderr
    assert machine.installed()["flash-attn"] == PREVIEW_VERSION
    checked = run([*UV, "check", "--python", machine.python], machine.folder)
    assert checked.returncode == 0, checked.stderr


@pytest.mark.parametrize("version", OF_AMD)
def test_an_installed_aiter_of_amds_stays(machine: Machine, preview: Path, tmp_path: Path, version: str) -> None:
    machine.install(aiter_of_amd(tmp_path, version)).check_returncode()
    before = machine.freeze()

    install_preview(machine, preview)
    if machine.command[2] == "uv":
        install_preview(machine, preview, "--reinstall-package=flash-attn")

    assert machine.installed()["amd-aiter"] == version
    assert set(before.splitlines()) <= set(machine.freeze().splitlines())


def test_a_preview_brings_our_aiter_where_none_is_and_one_of_amds_replaces_it_whole(
    machine: Machine, preview: Path, tmp_path: Path
) -> None:
    install_preview(machine, preview)
    assert machine.installed()["amd-aiter"] == OURS
    machine.install(aiter_of_amd(tmp_path, OF_AMD[0])).check_returncode()
    install_preview(machine, preview)

    assert machine.installed()["amd-aiter"] == OF_AMD[0]
    assert len(list(machine.python.parents[1].glob("lib/python*/site-packages/amd_aiter*.dist-info"))) == 1


def test_the_line_of_one_file_installs_ours_where_none_is_and_keeps_one_of_amds(
    new_machine: NewMachine, preview: Path, tmp_path: Path
) -> None:
    rows = read_manifest(preview / "manifest.jsonl")
    wheel = next(row for row in rows if row.cell == PREVIEW)
    line, _ = file_install_line(wheel, small_matrix(), rows).split(" && ")
    machine = replace(new_machine("pip"), command=(*PIP, "--python", tmp_path / "env/bin/python"))

    def install(*arguments: str) -> str:
        done = machine.install(*(word.replace("./", f"{preview}/wheels/") for word in arguments))
        assert done.returncode == 0, done.stderr
        return machine.installed()["amd-aiter"]

    given = shlex.split(line)[1:]
    assert install(*given) == OURS
    assert install("install", aiter_of_amd(tmp_path, OF_AMD[1])) == OF_AMD[1]
    assert install(*given) == OF_AMD[1]
