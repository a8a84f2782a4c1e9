"""The commands that the page copies work with real pip and real uv, against the site that serves the page."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest
from playwright.sync_api import Locator, Page, expect

from doctor.fake_machines import make_python
from doctor.known import WRITTEN
from release_factory import PYTHON_TAG, flash_attn_wheel, make_release, stub_wheel
from search_page import ELSEWHERE, Visit, serving, unfold, write_page
from wheel_factory import make_wheel, metadata_text
from wheelfactory.matrix.facts import Matrix
from wheelfactory.release.manifest import read_manifest
from wheelfactory.site.doctor_file import build_single_file

pytestmark = pytest.mark.slow

Command = Sequence[str | Path]

DOCTOR_LINE = "curl -O {0}doctor.py && python3 doctor.py {0}"
PYTHON = f"{sys.version_info[0]}.{sys.version_info[1]}"
CK = f"fa2.8.3-rocm6.4-torch2.9.1-{PYTHON_TAG}-ck"
TRITON = "fa2.8.3-rocm6.4-torch2.9.1-py3-triton"
OTHERS = (f"fa2.8.3-rocm6.4-torch2.8.0-{PYTHON_TAG}-ck", f"fa2.7.4.post1-rocm6.4-torch2.9.1-{PYTHON_TAG}-ck")
CK_VERSION, TRITON_VERSION = "2.8.3+rocm64torch2.9", "2.8.3+rocm64torch2.9triton"
TORCH, EINOPS, TRITON_OF_TORCH = "2.9.1+rocm6.4", "0.8.2", "3.5.1"


@dataclass(frozen=True)
class Place:
    """A site with its wheels, and two more indexes that stand in for PyTorch's and for PyPI."""

    address: str
    folder: Path
    pypi: str


@pytest.fixture(scope="module")
def place(matrix: Matrix, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    """A release with its index and search page; its matrix names the stand-in of PyTorch's index for ROCm 6.4.

    The fake PyPI has einops, and a newer torch and flash-attn for another platform, which must not be installed.
    """
    made, folder = tmp_path_factory.mktemp("made"), tmp_path_factory.mktemp("a site")
    with serving(folder) as address:
        make_release(folder, [*(flash_attn_wheel(made, cell) for cell in (CK, TRITON, *OTHERS)), einops(made)])
        triton = stub_wheel(made, "pytorch_triton_rocm", TRITON_OF_TORCH)
        write_index(folder / "pytorch", {"torch": torch_wheel(made), "pytorch-triton-rocm": triton})
        wrong = {name: stub_wheel(made, name.replace("-", "_"), "2.99.0") for name in ("torch", "flash-attn")}
        write_index(folder / "pypi", {"einops": einops(made), **wrong})
        rocm = matrix.rocm["6.4"].model_copy(update={"index": f"{address}pytorch/"})
        here = matrix.model_copy(update={"rocm": {**matrix.rocm, "6.4": rocm}})
        (folder / "doctor.py").write_text(
            build_single_file(WRITTEN, "")
        )  # like a release directory, which does not know its site
        write_page(folder, here, list(read_manifest(folder)))
        yield Place(address, folder, f"{address}pypi/")


def einops(folder: Path) -> Path:
    return stub_wheel(folder, "einops", EINOPS)


def torch_wheel(folder: Path) -> Path:
    """A torch that needs its Triton, as PyTorch's for ROCm does."""
    requires = [f"pytorch-triton-rocm=={TRITON_OF_TORCH}"]
    metadata = metadata_text(TORCH, name="torch", requires=requires)
    return make_wheel(folder, name="torch", version=TORCH, metadata=metadata, members={"torch/__init__.py": b""})


def write_index(folder: Path, wheels: dict[str, Path]) -> None:
    """A simple index of one wheel a project."""
    for project, wheel in wheels.items():
        page = folder / project / "index.html"
        page.parent.mkdir(parents=True)
        page.write_text(f'<!DOCTYPE html><a href="{wheel.name.replace("+", "%2B")}">{wheel.name}</a>')
        (page.parent / wheel.name).write_bytes(wheel.read_bytes())


@pytest.fixture
def bare_environment(tmp_path: Path) -> Path:
    """The Python of a user who has nothing."""
    return Path(make_python(tmp_path / "bare"))


@pytest.fixture
def environment(tmp_path: Path) -> Path:
    """The Python of a user who has only torch for ROCm and its Triton."""
    python = Path(make_python(tmp_path / "environment"))
    triton = stub_wheel(tmp_path, "pytorch_triton_rocm", TRITON_OF_TORCH)
    command: Command = [sys.executable, "-m", "uv", "pip", "install", "--python", python, "--no-index", triton]
    run([*command, torch_wheel(tmp_path)], tmp_path).check_returncode()
    return python


def run(command: Command, home: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run a command without the configuration, caches and proxies of this machine."""
    environ = {
        "PATH": os.environ["PATH"],
        "HOME": str(home),
        "PIP_CONFIG_FILE": os.devnull,
        "PIP_DISABLE_PIP_VERSION_CHECK": "1",
        "UV_CACHE_DIR": str(home / "uv"),
        **variables,
    }
    return subprocess.run(command, env=environ, cwd=home, capture_output=True, text=True)


def installed(python: Path) -> dict[str, str]:
    """What a Python has, by normalized name."""
    code = "import importlib.metadata as m, json; print(json.dumps({d.name: d.version for d in m.distributions()}))"
    done = subprocess.run([python, "-I", "-c", code], capture_output=True, text=True, check=True)
    found: dict[str, str] = json.loads(done.stdout)
    return {name.replace("_", "-"): version for name, version in found.items()}


def card_of(page: Page, version: str) -> Locator:
    """The card of a wheel."""
    button = page.get_by_role("button", name=re.compile(rf"^Copy.* of flash_attn-{re.escape(version)}-"))
    return page.locator("#cards > li").filter(has=button)


def copied(page: Page, form: str, version: str) -> str:
    """Choose the tab of a form of a wheel, press its copy button, and read the clipboard."""
    card = card_of(page, version)
    card.get_by_role("tab", name=form, exact=True).click()
    card.locator(".copies button").click()
    expect(page.get_by_role("status")).to_contain_text(f"Copied: {form} lines of")
    text: str = page.evaluate("navigator.clipboard.readText()")
    return text


@pytest.fixture
def page(visit: Visit, place: Place) -> Page:
    visitor = visit(place.address, permissions=["clipboard-read", "clipboard-write"])
    return visitor.open(f"?rocm=6.4&torch=2.9&flash-attn=2.8.3&python={PYTHON}")


@pytest.mark.parametrize(
    ("tool", "version", "has_torch"),
    [
        pytest.param("pip", CK_VERSION, False, id="pip, torch first"),
        pytest.param("uv", TRITON_VERSION, False, id="uv, torch first"),
        pytest.param("pip", TRITON_VERSION, True, id="pip, torch is there"),
        pytest.param("uv", CK_VERSION, True, id="uv, torch is there"),
    ],
)
def test_the_copied_lines_install_exactly_that_wheel_and_its_torch(
    page: Page, bare_environment: Path, environment: Path, tool: str, version: str, has_torch: bool, tmp_path: Path
) -> None:
    if has_torch:
        card_of(page, version).get_by_label("I have torch").check()
    else:
        environment = bare_environment
    lines = copied(page, tool, version).splitlines()
    assert len(lines) == (1 if has_torch else 2)
    commands: dict[str, Command] = {
        "pip": ["-m", "pip", "--python", environment],
        "uv": ["-m", "uv", "pip", "install", "--python", environment],
    }
    start = {"pip": ["pip"], "uv": ["uv", "pip", "install"]}[tool]
    for line in lines:
        words = shlex.split(line)
        assert words[: len(start)] == start
        done = run([sys.executable, *commands[tool], *words[len(start) :]], tmp_path)
        assert done.returncode == 0, done.stderr
    wanted = {"flash-attn": version, "einops": EINOPS, "torch": TORCH, "pytorch-triton-rocm": TRITON_OF_TORCH}
    assert installed(environment) == wanted


@pytest.mark.parametrize("version", [CK_VERSION, TRITON_VERSION], ids=["ck", "triton"])
def test_uv_syncs_the_copied_pyproject_to_exactly_that_wheel_and_its_torch(
    page: Page, place: Place, version: str, tmp_path: Path
) -> None:
    """PyTorch's index and PyPI are fakes on loopback; their other packages must not be installed."""
    (tmp_path / "pyproject.toml").write_text(copied(page, "pyproject.toml", version))
    command = [sys.executable, "-m", "uv", "sync", "--python", sys.executable, "--no-python-downloads"]
    done = run(command, tmp_path, UV_DEFAULT_INDEX=place.pypi)
    assert done.returncode == 0, done.stderr
    wanted = {"flash-attn": version, "einops": EINOPS, "torch": TORCH, "pytorch-triton-rocm": TRITON_OF_TORCH}
    assert installed(tmp_path / ".venv/bin/python") == wanted


def test_pip_verifies_the_sha256_of_the_copied_address(
    page: Page, place: Place, environment: Path, tmp_path: Path
) -> None:
    address = copied(page, "URL", CK_VERSION)
    row = next(row for row in read_manifest(place.folder) if row.cell == CK)
    assert address == f"{place.address}wheels/{row.filename.replace('+', '%2B')}#sha256={row.sha256}"
    command: Command = [sys.executable, "-m", "pip", "--python", environment, "install", "--no-deps"]
    other = run([*command, address[:-1] + ("0" if address[-1] != "0" else "1")], tmp_path)
    assert "DO NOT MATCH THE HASHES" in other.stderr
    assert run([*command, address], tmp_path).returncode == 0
    assert installed(environment)["flash-attn"] == CK_VERSION


def test_the_copied_form_is_shown_and_the_last_button_pressed_keeps_its_name_and_a_check_mark(page: Page) -> None:
    marked = page.locator("button", has_text="\N{CHECK MARK}")
    copied(page, "pip", CK_VERSION)
    expect(marked).to_have_text(re.compile("Copy both lines.*\N{CHECK MARK}"))
    copied(page, "URL", TRITON_VERSION)
    expect(marked).to_have_count(1)
    expect(marked).to_have_text(re.compile(f"Copy of flash_attn-{re.escape(TRITON_VERSION)}.*\N{CHECK MARK}"))
    text = copied(page, "pyproject.toml", CK_VERSION)
    shown = page.locator("#cards pre", has_text="[tool.uv.sources]")
    assert shown.inner_text().rstrip("\n") == text.rstrip("\n")


def test_the_steps_are_numbered_with_torch_first_unless_there_is_one(page: Page) -> None:
    card = card_of(page, CK_VERSION)
    assert card.locator(".step").all_inner_texts() == ["torch 2.9.1 for ROCm 6.4", "flash-attn"]
    card.get_by_label("I have torch").check()
    assert card_of(page, CK_VERSION).locator(".step").all_inner_texts() == ["flash-attn"]
    page.reload()
    expect(card_of(page, CK_VERSION).get_by_label("I have torch")).to_be_checked()


def test_a_pyproject_for_any_python_names_those_of_the_wheel(visit: Visit, place: Place) -> None:
    visitor = visit(place.address, permissions=["clipboard-read", "clipboard-write"])
    page = visitor.open("?rocm=6.4&torch=2.9&flash-attn=2.8.3")
    assert 'requires-python = ">=3.10,<3.15"' in copied(page, "pyproject.toml", TRITON_VERSION)


def test_the_doctors_line_is_copied_and_reads_the_manifest_of_that_release(
    page: Page, place: Place, tmp_path: Path
) -> None:
    page.get_by_role("button", name="Copy", exact=True).click()
    expect(page.get_by_role("status")).to_have_text("Copied: the doctor command")
    line = page.evaluate("navigator.clipboard.readText()")
    assert line == page.locator("#doctor-line").inner_text() == DOCTOR_LINE.format(place.address)
    done = run(["bash", "-c", line], tmp_path)
    # no GPU here; a manifest that cannot be read is an error
    assert "error:" not in done.stderr, done.stdout + done.stderr
    assert done.stdout.rstrip().endswith(f"python3 doctor.py {place.address}")


def test_on_plain_http_of_another_host_it_is_copied_all_the_same(visit: Visit, place: Place) -> None:
    """There is no clipboard API there; Chromium is made to find that host on loopback."""
    page = visit(place.address.replace("127.0.0.1", ELSEWHERE)).open("?backend=ck&torch=2.9&flash-attn=2.8.3")
    assert page.evaluate("navigator.clipboard === undefined")
    page.get_by_role("tab", name="uv").click()
    page.locator(".copies button").click()
    expect(page.get_by_role("status")).to_contain_text("Copied: uv lines")
    unfold(page)
    page.get_by_label("Text").press("Control+V")
    pasted = page.get_by_label("Text").input_value()
    assert pasted.startswith("uv pip install torch==2.9.1+rocm6.4 --default-index")
    assert f"uv pip install --default-index http://{ELSEWHERE}:" in pasted
    assert pasted.endswith(f"/simple/rocm64/torch2.9/ck/ flash-attn=={CK_VERSION}")


def test_where_nothing_may_be_copied_the_text_is_left_selected(visit: Visit, place: Place) -> None:
    visitor = visit(place.address)
    visitor.page.add_init_script(
        "navigator.clipboard.writeText = () => Promise.reject(); document.execCommand = () => false"
    )
    page = visitor.open("?backend=ck&torch=2.9&flash-attn=2.8.3")
    page.locator(".copies button").click()
    expect(page.get_by_role("status")).to_have_text("Selected: press Ctrl+C to copy")
    expect(page.locator(".copies button").first).to_contain_text("press Ctrl+C")
    selected = page.evaluate("getSelection().toString()")
    assert all(line in selected for line in page.locator("#cards pre").all_inner_texts())
