"""The doctor's install commands, run by real pip and real uv; and --install, from the prompt to the import."""

from __future__ import annotations

import json
import shlex
import shutil
import subprocess
from collections.abc import Callable, Iterator
from importlib.metadata import distribution
from pathlib import Path

import pytest

from doctor.fake_machines import SEEING_TORCH, fake_torch, make_python, write, write_metadata
from doctor.sites import CK_VERSION, make_site_release, served, users_environ
from release_factory import flash_attn_wheel
from wheel_factory import make_wheel, metadata_text
from wheelfactory.core.errors import DONE, FAILED

pytestmark = pytest.mark.slow

Done = subprocess.CompletedProcess[str]

TORCH = {"torch": SEEING_TORCH.version}


@pytest.fixture(scope="session")
def release(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A release, to be copied."""
    return make_site_release(tmp_path_factory.mktemp("site") / "a release+")


@pytest.fixture
def folder(release: Path, tmp_path: Path) -> Path:
    """A copy of the release."""
    return shutil.copytree(release, tmp_path / "release")


@pytest.fixture
def site(folder: Path) -> Iterator[str]:
    """Its address."""
    with served(folder) as address:
        yield address


@pytest.fixture(scope="session")
def environments(tmp_path_factory: pytest.TempPathFactory) -> Callable[[bool], Path]:
    """An environment with torch, with pip or without."""
    folder = tmp_path_factory.mktemp("environments")
    bare = Path(make_python(folder / "bare", SEEING_TORCH)).parents[1]
    with_pip = Path(make_python(folder / "pip", SEEING_TORCH)).parents[1]
    (packages,) = with_pip.glob("lib/python3*/site-packages")
    pip = distribution("pip")
    for name in ("pip", f"pip-{pip.version}.dist-info"):
        (packages / name).symlink_to(Path(str(pip.locate_file(name))))
    return lambda pip: with_pip if pip else bare


class User:
    """Somebody with a Python that has ROCm's torch, and the doctor of a site."""

    def __init__(self, home: Path, environment: Path, doctor: Path) -> None:
        self.home = home
        self.python = shutil.copytree(environment, home / "env", symlinks=True) / "bin/python"
        self.doctor = doctor
        self.environ = dict(users_environ(home))

    def run(self, command: list[str], answer: str = "") -> Done:
        return subprocess.run(command, env=self.environ, cwd=self.home, input=answer, capture_output=True, text=True)

    def ask(self, *arguments: str, answer: str = "") -> Done:
        return self.run([str(self.python), str(self.doctor), *arguments], answer)

    def installed(self) -> dict[str, str]:
        """The projects it has, with their versions, and without pip."""
        code = "import importlib.metadata as m, json; print(json.dumps({d.name: d.version for d in m.distributions()}))"
        found: dict[str, str] = json.loads(self.run([str(self.python), "-I", "-c", code]).stdout)
        tools = ("pip", "setuptools")
        return {name.replace("_", "-"): version for name, version in found.items() if name not in tools}


NewUser = Callable[..., User]


@pytest.fixture
def new_user(environments: Callable[[bool], Path], tmp_path: Path, folder: Path) -> NewUser:
    """Makes a user with pip, or with uv alone."""
    return lambda *, pip=True: User(tmp_path, environments(pip), folder / "doctor.py")


@pytest.mark.parametrize(("tool", "place", "version"), [("pip", 0, CK_VERSION), ("uv", 1, f"{CK_VERSION}triton")])
def test_the_line_installs_exactly_that_wheel_and_refuses_one_with_other_bytes(
    new_user: NewUser, site: str, folder: Path, tool: str, place: int, version: str
) -> None:
    user = new_user(pip=tool == "pip")
    offer = json.loads(user.ask("--json").stdout)["fitting"][place]
    assert offer["url"].startswith(f"{site}wheels/")
    served = folder / "wheels" / offer["filename"]
    whole = served.read_bytes()
    flash_attn_wheel(folder / "wheels", offer["cell"], content="import evil")
    assert served.read_bytes() != whole
    refused = user.run(shlex.split(offer[tool]))
    assert refused.returncode != 0
    assert "hash" in refused.stderr.lower()
    assert user.installed() == TORCH
    served.write_bytes(whole)
    done = user.run(shlex.split(offer[tool]))
    assert done.returncode == 0, done.stderr
    assert user.installed() == {**TORCH, "einops": "0.8.2", "flash-attn": version}


@pytest.mark.parametrize("tool", ["pip", "uv"])
def test_the_line_of_a_release_directory_needs_no_server(
    new_user: NewUser, site: str, release: Path, tool: str
) -> None:
    user = new_user(pip=tool == "pip")
    offer = json.loads(user.ask("--json", str(release)).stdout)["fitting"][0]
    assert offer["url"].startswith(f"{release.as_uri()}/wheels/")
    assert user.run(shlex.split(offer[tool])).returncode == 0
    assert user.installed() == {**TORCH, "einops": "0.8.2", "flash-attn": CK_VERSION}


def with_stand_in(command: str, site: str) -> list[str]:
    """The words of a printed command, with the stand-in of PyTorch's index and this Python's pip."""
    return shlex.split(command.replace("https://download.pytorch.org/whl/rocm6.4", f"{site}pytorch/"))


@pytest.mark.parametrize("kind", ["pip", "uv"])
def test_the_printed_steps_lead_from_a_torch_for_cuda_to_a_wheel(
    kind: str, site: str, folder: Path, tmp_path: Path, environments: Callable[[bool], Path]
) -> None:
    """Torch for ROCm, a wheel and the doctor again."""
    torch = make_wheel(
        folder / "pytorch/torch",
        name="torch",
        version=SEEING_TORCH.version,
        metadata=metadata_text(SEEING_TORCH.version, name="torch"),
        members={"torch/__init__.py": SEEING_TORCH.code.encode()},
    )
    link = f'<!DOCTYPE html><a href="{torch.name.replace("+", "%2B")}">{torch.name}</a>'
    write(torch.with_name("index.html"), link)
    user = User(tmp_path, environments(kind != "uv"), folder / "doctor.py")
    (packages,) = user.home.glob("env/lib/python3*/site-packages")
    (stale,) = packages.glob("torch-*.dist-info")
    shutil.rmtree(stale)
    wrong = fake_torch("2.9.1+cu128", cuda="12.8", archs=("sm_90",))
    write(packages / "torch/__init__.py", wrong.code)
    write_metadata(packages, "torch", wrong.version)
    record = f"torch-{wrong.version}.dist-info/RECORD"
    write(packages / record, f"torch/__init__.py,,\n{record.replace('RECORD', 'METADATA')},,\n{record},,\n")
    # this torch uses the NVIDIA GPU beside an Instinct, so that no device of this machine matters
    write(user.home / "bin/rocm_agent_enumerator", "#!/bin/sh\necho gfx942\n").chmod(0o755)
    user.environ["PATH"] = f"{user.home}/bin:{user.environ['PATH']}"
    report = json.loads(user.ask("--json").stdout)
    assert user.ask().returncode == FAILED
    steps = report["steps"]
    for step in steps[:-1]:
        for command in step["commands"]:
            done = user.run(with_stand_in(command, site))
            assert done.returncode == 0, done.stderr
    assert user.installed() == {**TORCH, "einops": "0.8.2", "flash-attn": CK_VERSION}
    assert steps[-1]["commands"][0].endswith("doctor.py")
    assert user.ask().stdout.startswith("Works; keep it: ")


def test_the_line_for_a_matching_wheel_uses_the_sites_index(new_user: NewUser, site: str) -> None:
    user = new_user()
    (step,) = json.loads(user.ask("--json", "--backend", "triton").stdout)["steps"]
    (command,) = step["commands"]
    assert f"{site}simple/rocm64/torch2.9/triton/" in command
    assert user.run(shlex.split(command)).returncode == 0
    assert user.installed() == {**TORCH, "einops": "0.8.2", "flash-attn": f"{CK_VERSION}triton"}
    assert user.ask("--backend", "triton").stdout.startswith("Works; keep it: ")


@pytest.mark.parametrize("pip", [True, False], ids=["pip", "uv"])
def test_install_asks_installs_and_imports(new_user: NewUser, site: str, pip: bool) -> None:
    user = new_user(pip=pip)
    done = user.ask("--install", answer="y\n")
    assert done.returncode == DONE, done.stderr
    assert "Install it? [y/N] " in done.stderr
    lines = done.stdout.splitlines()
    (line,) = [line for line in lines if "--no-deps" in line and not line.startswith(" ")]
    assert "flash_attn-2.8.3%2Brocm64torch2.9-1-cp" in line, "the command that it runs"
    assert lines[-1] == f"flash-attn {CK_VERSION} is installed and imports."
    assert user.installed() == {**TORCH, "einops": "0.8.2", "flash-attn": CK_VERSION}
    again = user.ask("--install")  # no prompt any more
    assert (again.returncode, "Install it?" in again.stderr) == (DONE, False)
    assert again.stdout.startswith("Works; keep it: flash-attn 2.8.3+rocm64torch2.9 ")


def test_an_installation_that_fails_is_told(new_user: NewUser, site: str, folder: Path) -> None:
    for wheel in folder.glob("wheels/flash_attn*.whl"):
        wheel.unlink()
    done = new_user().ask("--install", answer="y\n")
    assert done.returncode == FAILED
    assert "error: the installation failed: " in done.stderr
    assert "404" in done.stderr


def test_what_does_not_import_after_installing_is_told_and_installed_again_at_the_next_call(
    new_user: NewUser, tmp_path: Path, folder: Path
) -> None:
    broken = make_site_release(tmp_path / "broken", content="raise ImportError('no kernels')")
    with served(broken):
        shutil.copy(broken / "doctor.py", folder)
        user = new_user()
        done = user.ask("--install", answer="y\n")
        assert done.returncode == FAILED
        assert f"flash-attn {CK_VERSION} is installed but does not import: ImportError: no kernels" in done.stdout
        again = json.loads(user.ask("--json").stdout)
    assert again["diagnoses"]
    assert "--force-reinstall" in again["fitting"][0]["pip"]
