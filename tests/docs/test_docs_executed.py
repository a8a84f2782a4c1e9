"""The commands of every page are run, in the order of the page, in a fresh checkout without GPU, ROCm or engine.

What is not run says why in a mark before it (see `docs.pages`). Downloads and environments are those of the cache, and
the matrix is that of `few_archs`.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Callable
from importlib.metadata import distribution
from pathlib import Path

import pytest

from docs.pages import Page, pages
from docs.session import Done, make_checkout, run_page
from doctor.fake_machines import fake_torch, make_python
from doctor.sites import users_environ
from explain.build_logs import failed
from few_archs import write_few_archs
from loopback import served
from published_site import publish_cells
from release_factory import PYTHON_TAG

SECOND_WHEEL = re.compile(r"(\n  '7\.1':\n    torch: \[)'2\.13\.0', ")
"""Where the matrix lists README's torch for a second ROCm: one wheel shows the same in half the time."""

WHEEL_VERSION = "2.8.3+rocm72torch2.13triton"
TORCH = fake_torch("2.13.0+rocm7.2", hip="7.2.26015-fc0010cf6", archs=("gfx942",))

README_TEST = "test_readmes_install_lines_work_with_the_site_that_it_tells_to_make"
README_CK_TEST = "test_readmes_line_for_ck_installs_the_ck_wheel_of_a_site_that_has_one"
SITE = "SITE=http://localhost:8000"

GENERATED = "docs/packages.md"
"""Written by a workflow of each factory; its lines are for the address of that, and tests/report/ looks at them."""

WITH_COMMANDS = [page for page in pages() if page.path != GENERATED and any(block.is_executed for block in page.blocks)]

Run = Callable[[Page], Done]


def run_in_checkout(page: Page, folder: Path, cache: Path, prepare: Callable[[str, Path], None]) -> Done:
    """Run a page in a checkout of its own, with what the page needs."""
    checkout, home = folder / "wheelfactory", folder / "home"
    home.mkdir()
    (home / ".cache").symlink_to(cache.parent)
    make_checkout(checkout)
    matrix = write_few_archs(checkout / "matrix.yaml")
    matrix.write_text(SECOND_WHEEL.sub(r"\1", matrix.read_text()))
    for need in page.needs:
        prepare(need, checkout)
    private = ("GITHUB_", "GH_", "PYTHON", "VIRTUAL_ENV", "COVERAGE_", "PYTEST_")
    environ = {name: value for name, value in os.environ.items() if not name.startswith(private)}
    return run_page(page, checkout, home, environ)


@pytest.fixture(scope="module")
def readme(cache: Path, proved: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Done, Path]:
    """What came of README's commands, and the release directory that they made."""
    folder = tmp_path_factory.mktemp("readme")
    done = run_in_checkout(Page("README.md"), folder, cache, lambda need, _: pytest.fail(need))
    return done, folder / "wheelfactory/wheelhouse"


@pytest.fixture(scope="module")
def wheelhouse(readme: tuple[Done, Path]) -> Path:
    """A release directory with one Triton wheel, made as a reader of README makes it."""
    done, made = readme
    assert done.code == 0, done.output
    return made


@pytest.fixture
def run(request: pytest.FixtureRequest, cache: Path, tmp_path: Path) -> Run:
    """Runs a page; README was run once for all."""

    def prepare(need: str, checkout: Path) -> None:
        if need == "build.log":
            (checkout / need).write_text(failed("clang++: error: unable to execute command: Killed"))
            return
        made: Path = request.getfixturevalue("wheelhouse")
        if need == "wheelhouse":
            shutil.copytree(made, checkout / need)
        elif need == "dist":
            (checkout / need).mkdir()
            shutil.copy(next(made.glob("wheels/flash_attn-*+rocm*.whl")), checkout / need)
        else:
            pytest.fail(f"nobody makes what the page needs: {need}")

    def run_once(page: Page) -> Done:
        if page.path == "README.md":
            done: Done = request.getfixturevalue("readme")[0]
            return done
        return run_in_checkout(page, tmp_path, cache, prepare)

    return run_once


@pytest.mark.slow
@pytest.mark.usefixtures("proved")
@pytest.mark.parametrize("page", WITH_COMMANDS, ids=lambda page: page.path)
def test_the_commands_of_a_page_do_what_it_says(page: Page, run: Run) -> None:
    done = run(page)
    assert done.code == 0, f"\n{done.output}"


def run_readmes_lines(test: str, site: Path, folder: Path) -> subprocess.CompletedProcess[str]:
    """Run the blocks of README that name a test, with SITE as README gives it, but at the port of this server.

    The Python has pip and a stand-in for ROCm's torch 2.13: no AMD wheel of torch can be installed here.
    """
    python = Path(make_python(folder / "env", TORCH))
    (site_packages,) = python.parents[1].glob("lib/python3*/site-packages")
    (site_packages / "pip.pth").write_text(f"{Path(str(distribution('pip').locate_file('')))}\n")
    blocks = [block for block in Page("README.md").blocks if test in (block.mark("not executed") or "")]
    with served(site) as found:
        lines = [line.replace(SITE, f"SITE={found.url}") for block in blocks for line in block.text.splitlines()]
        script = ["set -ex", f"SITE={found.url}", 'pip() { python3 -m pip "$@"; }', *lines, "pip show flash-attn"]
        environ = {**users_environ(folder), "PATH": f"{python.parent}:{os.environ['PATH']}"}
        return subprocess.run(
            ["bash", "-c", "\n".join(script)], cwd=folder, env=environ, capture_output=True, text=True
        )


@pytest.mark.slow
def test_readmes_install_lines_work_with_the_site_that_it_tells_to_make(wheelhouse: Path, tmp_path: Path) -> None:
    done = run_readmes_lines(README_TEST, wheelhouse, tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    doctor, pip = done.stdout.split("Successfully installed")
    assert WHEEL_VERSION in doctor
    assert f"Version: {WHEEL_VERSION}" in pip


@pytest.mark.slow
def test_readmes_line_for_ck_installs_the_ck_wheel_of_a_site_that_has_one(tmp_path: Path) -> None:
    """The CK wheel is a tiny one: compiling a real one takes hours."""
    publish_cells(tmp_path / "site", {f"fa2.8.3-rocm7.2-torch2.13.0-{PYTHON_TAG}-ck": ""})
    done = run_readmes_lines(README_CK_TEST, tmp_path / "site", tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "Version: 2.8.3+rocm72torch2.13\n" in done.stdout


def page_of(tmp_path: Path, text: str) -> Page:
    path = tmp_path / "page.md"
    path.write_text(f"# Title\n\n{text}")
    return Page(str(path))


@pytest.fixture
def shell(tmp_path: Path) -> Run:
    """Runs a page that needs no checkout."""
    (tmp_path / "folder").mkdir()
    return lambda page: run_page(page, tmp_path / "folder", tmp_path / "home", os.environ)


def test_blocks_share_one_shell_and_the_factory_is_that_of_the_checkout(tmp_path: Path, run: Run) -> None:
    page = page_of(
        tmp_path,
        '```bash\nmkdir sub && cd sub\nNAME=value\n```\n\n```sh\ntest "$NAME" = value\ntest -f ../matrix.yaml\n'
        ".././factory explain fa2.8.3-rocm7.2-torch2.13.0-py3-triton\n"
        "../.venv/bin/python -c 'import wheelfactory; print(wheelfactory.__file__)'\n```\n",
    )
    done = run(page)
    assert done.code == 0, done.output
    assert "rocm72torch2.13triton" in done.output
    assert done.output.splitlines()[-1] == str(tmp_path / "wheelfactory/src/wheelfactory/__init__.py")


def test_the_line_of_the_page_that_failed_is_named_with_its_command(tmp_path: Path, shell: Run) -> None:
    done = shell(page_of(tmp_path, "```bash\ntrue\n```\n\ntext\n\n```bash\ntrue\nfalse\necho not reached\n```\n"))
    assert done.code == 1
    assert f"{tmp_path}/page.md:11: failed: false" in done.output
    assert "not reached" not in done.output


@pytest.mark.parametrize(("code", "wanted"), [(5, 0), (0, 1), (1, 1)])
def test_a_block_may_be_meant_to_fail_with_one_exit_code(tmp_path: Path, shell: Run, code: int, wanted: int) -> None:
    marked = f"<!-- exit code 5 -->\n```bash\n(exit {code})\n```\n\n```bash\necho on\n```\n"
    done = shell(page_of(tmp_path, marked))
    assert done.code == wanted
    assert ("on\n" in done.output) is (wanted == 0)


@pytest.mark.parametrize(
    ("shown", "code"),
    [("first\n2 ... here", 0), ("first\n3 ... here", 1), ("2 ... here\nfirst", 1)],
    ids=["as printed", "not printed", "other order"],
)
def test_what_a_console_shows_is_printed(tmp_path: Path, shell: Run, shown: str, code: int) -> None:
    commands = "$ echo first\n$ echo 2 lines are \\\n  here >&2\n"
    done = shell(page_of(tmp_path, f"```console\n{commands}{shown}\n```\n"))
    assert done.code == code
    assert (":3: shows what is not printed there: " in done.output) is bool(code)


def test_a_block_can_be_a_file_or_a_part_of_one(tmp_path: Path, shell: Run) -> None:
    page = page_of(
        tmp_path,
        "<!-- file some.yaml -->\n```yaml\nfirst:\n  a: '1'\nlast: '$HOME'\n```\n\n"
        "<!-- insert into some.yaml -->\n```yaml\nfirst:\n  new: '0'\n```\n\n```bash\ncat some.yaml\n```\n",
    )
    assert shell(page).output == "first:\n  new: '0'\n  a: '1'\nlast: '$HOME'\n"


def test_a_block_that_is_marked_is_not_run_and_what_runs_on_is_ended(tmp_path: Path, shell: Run) -> None:
    page = page_of(tmp_path, "<!-- not executed: needs ROCm -->\n```bash\nfalse\n```\n\n```bash\nsleep 1000 &\n```\n")
    done = shell(page)
    assert (done.code, done.output) == (0, "")
