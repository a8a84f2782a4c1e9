"""doctor.py: the facts that it embeds, its parts, that it runs alone on every Python, and where it looks for wheels."""

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
from small_matrix import PREVIEW, small_matrix
from validations import amd_validation, nvidia_validation
from wheelfactory.build.products import read_fallback_project
from wheelfactory.core.cell import major_minor
from wheelfactory.core.errors import BAD_INPUT, DONE, InputError
from wheelfactory.core.files import MATRIX
from wheelfactory.core.support import Answer
from wheelfactory.doctor.facts import DoctorFacts
from wheelfactory.matrix.facts import Matrix
from wheelfactory.matrix.load import load_matrix
from wheelfactory.release.directory import DirectoryPublisher
from wheelfactory.release.transaction import add_evidence
from wheelfactory.site import doctor_file
from wheelfactory.site.doctor_file import build_single_file, doctor_facts, support_tables


@pytest.fixture
def matrix() -> Matrix:
    return load_matrix(MATRIX)


@pytest.fixture
def facts(matrix: Matrix) -> DoctorFacts:
    return DoctorFacts.parse(doctor_facts(matrix))


def test_each_release_has_the_window_of_the_matrix(matrix: Matrix, facts: DoctorFacts) -> None:
    for name, release in matrix.flash_attn.items():
        window = facts.find_triton_window(name)
        written = window and f">={window[0][0]}.{window[0][1]}.0,<{window[1][0]}.{window[1][1]}"
        assert written == (release.triton.window if release.triton else None), name


def test_a_post_release_has_the_kernels_of_its_release(facts: DoctorFacts) -> None:
    for release, window in (
        ("2.8.3.post1", ((3, 2), (3, 9))),  # a post-release that the matrix has not
        ("2.7.4", ((3, 1), (3, 9))),  # the release before a post-release
        ("2.8.30", None),  # another release
        ("2.6.3", None),  # one without Triton
    ):
        assert facts.find_triton_window(release) == window


def test_each_torch_has_the_pythons_and_the_triton_of_the_matrix(matrix: Matrix, facts: DoctorFacts) -> None:
    for version, torch in matrix.torch.items():
        known, named = facts.find_torch(major_minor(version)), sorted(map(major_minor, torch.python))
        assert (known.pythons, known.triton_package) == ((named[0], named[-1]), torch.triton_package), version
    assert facts.find_torch((2, 99)) == facts.torches[0], "beyond the matrix the nearest"
    assert facts.find_torch((1, 13)) == facts.torches[-1]


def test_a_torch_is_known_as_soon_as_the_matrix_has_it(matrix: Matrix) -> None:
    newer = matrix.torch["2.14.1"].model_copy(update={"python": ("3.16", "3.9", "3.10")})
    facts = DoctorFacts.parse(doctor_facts(matrix.model_copy(update={"torch": {**matrix.torch, "2.20.0": newer}})))
    assert facts.torches[0].torch == (2, 20)
    assert facts.torches[0].pythons == ((3, 9), (3, 16))


def test_the_first_version_of_an_axis_is_the_newest_wherever_it_stands_in_the_matrix(matrix: Matrix) -> None:
    backwards = matrix.model_copy(
        update={"python": matrix.python[::-1], "rocm": dict(reversed(matrix.rocm.items())), "torch": {}}
    )
    axes = DoctorFacts.parse(doctor_facts(backwards)).support.axes
    assert (axes["python"], axes["rocm"]) == (matrix.python, tuple(matrix.rocm))


def test_the_oldest_torch_of_the_fallback_comes_from_its_project(matrix: Matrix) -> None:
    major, minor = json.loads(doctor_facts(matrix))["fallback_torch"]
    assert list(read_fallback_project().requires) == [f"torch>={major}.{minor}"]


def test_where_only_a_preview_has_code_the_answer_is_may_work_and_a_release_promises_all_the_same() -> None:
    tables = support_tables(small_matrix(PREVIEW))
    # the exclusion of the small matrix leaves Python 3.12 out
    place = {"rocm": "6.4", "torch": "2.9.1", "python": "3.11", "backend": "ck"}
    found = tables.find_support({**place, "gpu": "gfx1100"})
    assert found.answer is Answer.MAY_WORK
    assert any("2.8.4 preview (commit 4a948e9) is not a release of upstream" in reason for reason in found.reasons)
    assert tables.find_support({**place, "gpu": "gfx942"}).answer is Answer.WORKS


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
    doctor_file._join_modules.cache_clear()
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
