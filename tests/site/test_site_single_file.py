"""The doctor as one file: its parts, that it runs alone on every Python, and where it looks for wheels."""

from __future__ import annotations

import ast
import json
import os
import re
import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from doctor.fake_machines import SEEING_TORCH, make_python
from doctor.known import WRITTEN
from doctor.sites import TRITON_CELL, make_site_release, served, users_environ
from pythons import find_python
from validations import amd_validation, nvidia_validation
from wheelfactory.core.errors import BAD_INPUT, DONE, InputError
from wheelfactory.release.directory import DirectoryPublisher
from wheelfactory.release.transaction import add_evidence
from wheelfactory.site import single_file
from wheelfactory.site.single_file import build_single_file

SITE = "https://me.github.io/wheels/"


@pytest.fixture(scope="module")
def doctor(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The file, without a site."""
    path = tmp_path_factory.mktemp("doctor") / "doctor.py"
    path.write_text(build_single_file(WRITTEN), encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A release with evidence for its Triton wheel, to be copied."""
    publisher = DirectoryPublisher(make_site_release(tmp_path_factory.mktemp("made") / "release"))
    (triton,) = (row for row in publisher.rows() if row.cell == TRITON_CELL)
    add_evidence(publisher, [nvidia_validation(triton), amd_validation(triton)])
    return publisher.folder


@pytest.fixture
def release(made: Path, tmp_path: Path) -> Path:
    """A release that has not been served yet."""
    return shutil.copytree(made, tmp_path / "release")


def call(command: list[str | Path], home: Path, **more: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, env=users_environ(home), cwd=home, capture_output=True, text=True, **more)  # type: ignore[call-overload, no-any-return] # what else `run` takes


@pytest.mark.slow
@pytest.mark.parametrize("minor", range(9, 15))
def test_it_runs_by_itself_on_every_python(minor: int, tmp_path: Path, release: Path) -> None:
    base = find_python(minor)
    if base is None:
        pytest.skip(f"no Python 3.{minor} on this machine")
    python = make_python(tmp_path / "env", SEEING_TORCH, str(base))
    with served(release):
        done = call([python, "-W", "error", release / "doctor.py", "--json"], tmp_path)
    report = json.loads(done.stdout)
    assert (done.returncode, report["exit_code"]) == (DONE, DONE), done.stderr
    assert report["machine"]["python"]["version"].startswith(f"3.{minor}.")
    assert report["machine"]["torch"]["hip"] == "6.4.43482-0f2d60242"
    verified = {offer["version"]: offer["verified_on"] for offer in report["fitting"]}
    assert verified["2.8.3+rocm64torch2.9triton"] == ["gfx942"]


def test_an_older_python_gets_an_error_without_traceback(doctor: Path) -> None:
    """A wrapper of this Python that reports an older version."""
    code = "import sys; sys.version_info = (3, 8, 20); exec(open(sys.argv[1]).read())"
    done = subprocess.run([sys.executable, "-c", code, doctor], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == "error: Python is too old: doctor.py needs 3.9 or newer\n"


def test_it_needs_nothing_of_this_package_and_defines_every_name_in_it(doctor: Path, tmp_path: Path) -> None:
    tree = ast.parse(doctor.read_text(encoding="utf-8"), feature_version=(3, 9))
    imported = [node for node in ast.walk(tree) if isinstance(node, (ast.Import, ast.ImportFrom))]
    modules = {node.module if isinstance(node, ast.ImportFrom) else node.names[0].name for node in imported}
    tops = {str(name).partition(".")[0] for name in modules}
    assert tops - set(sys.stdlib_module_names) == set()
    # each module has its own imports: F811
    options = ["--isolated", "--no-cache", "--select", "F", "--ignore", "F811", "--target-version", "py39"]
    done = call([sys.executable, "-m", "ruff", "check", *options, doctor], tmp_path)
    assert done.returncode == 0, done.stdout


def test_no_two_of_its_modules_define_the_same_name(doctor: Path) -> None:
    """Else a function of the first module would call that of the second. The same import twice is the same name."""
    defined = {pair for node in ast.parse(doctor.read_text()).body for pair in definitions(node)}
    names = Counter(name for name, _ in defined)
    assert [name for name, number in names.items() if number > 1] == []


def definitions(node: ast.stmt) -> set[tuple[str, str]]:
    """The names that a statement at the top level defines, each with where: its line, or what is imported."""
    if isinstance(node, (ast.Import, ast.ImportFrom)):
        module = node.module if isinstance(node, ast.ImportFrom) else ""
        tops = ((alias.asname or alias.name).partition(".")[0] for alias in node.names)
        return {(name, f"import from {module}") for name in tops}
    if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
        return {(node.name, str(node.lineno))}
    targets = node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AnnAssign) else []
    found = {name.id for target in targets for name in ast.walk(target) if isinstance(name, ast.Name)}
    return {(name, str(node.lineno)) for name in found}


def test_the_file_describes_itself_and_is_readable_and_the_same_for_the_same_sources(doctor: Path) -> None:
    single_file._assemble_program.cache_clear()
    assert build_single_file(WRITTEN) == doctor.read_text(encoding="utf-8")
    text = build_single_file(WRITTEN, SITE)
    docstring = ast.get_docstring(ast.parse(text)) or ""
    assert "python3 doctor.py --install" in docstring
    assert SITE in docstring
    assert max(map(len, text.splitlines())) <= 120 + len("# ")  # docstrings of modules become comments
    for module in ("wheelfactory.core.gpus", "wheelfactory.doctor.fit", "wheelfactory.doctor.program"):
        assert f"\n# {module}\n" in text


def test_the_site_is_its_one_constant_and_none_that_could_be_code() -> None:
    without, text = build_single_file(WRITTEN), build_single_file(WRITTEN, SITE)
    assert text.count(SITE) == 2  # there, and in the docstring
    assert text.replace(f" of\n{SITE}", "").replace(f'SITE = "{SITE}"', 'SITE = ""') == without
    for site in ('https://a/"; import os', "https://a/\\", "https://a/\n", "https://a/ b", '"""', "\x1b"):
        with pytest.raises(InputError, match="not a site address"):
            build_single_file(WRITTEN, site)


def test_beside_a_manifest_it_needs_no_site(tmp_path: Path, doctor: Path, release: Path) -> None:
    shutil.copy(doctor, release)
    python = make_python(tmp_path / "env", SEEING_TORCH)
    done = call([python, release / "doctor.py", "--json"], tmp_path)
    assert json.loads(done.stdout)["fitting"][0]["url"].startswith(f"{release.as_uri()}/wheels/")
    assert done.returncode == DONE, done.stderr


def test_it_can_be_piped_to_python(tmp_path: Path, release: Path) -> None:
    python = make_python(tmp_path / "env", SEEING_TORCH)
    with served(release), (release / "doctor.py").open() as file:
        done = call([python, "-"], tmp_path, stdin=file)
    assert done.returncode == DONE, done.stderr
    assert done.stdout.startswith("Install this: flash-attn 2.8.3, CK backend")


def test_without_network_the_machine_is_examined_all_the_same(tmp_path: Path, release: Path) -> None:
    with served(release):
        pass  # and gone
    done = call([make_python(tmp_path / "env", SEEING_TORCH), release / "doctor.py"], tmp_path)
    assert done.returncode == BAD_INPUT
    assert "no wheel was looked up" in done.stdout
    errors = done.stderr.splitlines()
    assert re.fullmatch(r"error: cannot read the manifest: http://.*/manifest.jsonl \(.*refused\)", errors[1])
    assert errors[2].startswith("hint: ")


def test_a_reader_that_goes_away_is_no_error(tmp_path: Path, doctor: Path) -> None:
    python = make_python(tmp_path / "env", SEEING_TORCH)
    reading, writing = os.pipe()
    os.close(reading)
    done = subprocess.run(
        [python, doctor], stdout=writing, stderr=subprocess.PIPE, text=True, env=users_environ(tmp_path)
    )
    os.close(writing)
    assert "Traceback" not in done.stderr
    assert done.returncode == 141
