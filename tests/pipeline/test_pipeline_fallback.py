"""flash-attention-amd is built reproducibly, verified, published, and listed in every index."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from command_line import Cli
from rocm_machine import make_machine
from stage_arguments import local_executor
from wheel_factory import TRITON, make_wheel, metadata_text, read_zip, small_machine, tamper
from wheelfactory.build import products as sources
from wheelfactory.build.products import (
    FallbackProject,
    PinnedProject,
    build_wheel,
    pin_product,
    plain_folder,
    read_fallback_project,
)
from wheelfactory.core.cell import FLASH_ATTN_FALLBACK, OFFERED_PRODUCTS, Cell
from wheelfactory.core.errors import BUILD_FAILED, BuildError, InputError, RunAgainError, VerificationError
from wheelfactory.core.files import file_sha256
from wheelfactory.matrix.facts import Context
from wheelfactory.pipeline import run as running
from wheelfactory.pipeline.build import Failure
from wheelfactory.pipeline.run import CellPipeline, Worklist, exit_code, run_worklist
from wheelfactory.release.additions import as_addition, find_missing_products, read_additions, read_wheel_row
from wheelfactory.release.directory import DirectoryPublisher
from wheelfactory.release.transaction import publish
from wheelfactory.release.verified import unverified_reason
from wheelfactory.site.site import Site
from wheelfactory.verify.fallback import check_fallback_import
from wheelfactory.verify.gate import ProductSubject
from wheelfactory.verify.gates import required_gates, runs_on_publish, verify
from wheelfactory.verify.proofs import ProgramReport, ProofKey
from wheelfactory.verify.result import GateResult, Status
from wheelfactory.wheel.read import BUILD_RECORD_NAME, Wheel

NAME = "flash-attention-amd"
REQUIRED = required_gates(NAME)
PASSED = tuple(GateResult(gate=name, status=Status.PASSED) for name in REQUIRED)


@pytest.fixture(scope="module", autouse=True)
def project(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FallbackProject]:
    """Copy the project of this checkout once, so that edits during the tests change nothing."""
    found, folder = read_fallback_project(), tmp_path_factory.mktemp("checkout")
    found.write_sources(folder)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(sources, "FALLBACK_SOURCES", folder)
        yield found


@pytest.fixture
def given(tmp_path: Path, project: FallbackProject) -> Context:
    """A small machine that can build and run nothing, with a plain build as a test double."""
    small = small_machine(tmp_path / "cache")
    write_wheel(plain_folder(NAME, project.version, project.identity, small.cache), project)
    return small


@pytest.fixture(scope="module")
def wheel(cache: Path, project: FallbackProject, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel as the factory builds it."""
    return build_fallback(tmp_path_factory.mktemp("built"), cache)


@pytest.fixture
def checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of the sources that replaces those of the checkout."""
    folder = tmp_path / "packages/flash_attention_amd"
    read_fallback_project().write_sources(folder)
    monkeypatch.setattr(sources, "FALLBACK_SOURCES", folder)
    return folder


def build_fallback(folder: Path, cache: Path) -> Path:
    """Build the wheel of the sources of this checkout into `folder`."""
    return build_wheel(pin_product(NAME, small_machine(cache, os.environ)), folder, cache)


def append_to_package(checkout: Path, text: str) -> None:
    path = checkout / "src/flash_attention_amd/__init__.py"
    path.write_text(f"{path.read_text()}\n{text}\n")


def set_version(checkout: Path, version: str) -> None:
    path = checkout / "pyproject.toml"
    path.write_text(re.sub('"0[.][12][.]0"', f'"{version}"', path.read_text()))


def write_wheel(folder: Path, project: FallbackProject, **changes: Any) -> Path:
    """Write a wheel that is correct except for the changes."""
    version = changes.get("version", project.version)
    correct: dict[str, Any] = {
        "name": "flash_attention_amd",
        "version": version,
        "members": project.members,
        "metadata": metadata(project, version=version),
        "dist_info_members": {"licenses/LICENSE": project.build_files["LICENSE"]},
    }
    return make_wheel(folder, **{**correct, **changes})


def metadata(project: FallbackProject, **changes: Any) -> str:
    truth = {"version": project.version, "name": NAME, "requires_python": project.requires_python}
    return metadata_text(**{**truth, "requires": project.requires, **changes})


# -- built


@pytest.mark.slow
def test_build_prints_only_the_path_of_the_wheel(cli: Cli, cache: Path, project: FallbackProject) -> None:
    shown = cli("build", NAME, "--cache", cache, "--dest", "dist")
    assert (shown.code, shown.out) == (0, f"{Path.cwd()}/dist/{project.filename}\n")


@pytest.mark.slow
def test_two_builds_of_the_same_sources_give_the_same_bytes(
    checkout: Path, wheel: Path, project: FallbackProject, cache: Path, tmp_path: Path
) -> None:
    """The second build has another folder, file times and umask, and leftovers of builds and tests in the checkout."""
    for name in ("build/lib/flash_attention_amd/old.py", "src/flash_attention_amd.egg-info/SOURCES.txt"):
        (checkout / name).parent.mkdir(parents=True)
        (checkout / name).write_text("flash_attention_amd/old.py\n")
    (checkout / "src/flash_attention_amd/__pycache__").mkdir()
    (checkout / "src/flash_attention_amd/__pycache__/old.pyc").write_bytes(b"")
    assert read_fallback_project() == project
    os.utime(checkout / "src/flash_attention_amd/__init__.py", (0, 1e9))
    before = os.umask(0o077)
    try:
        own = make_machine(tmp_path / "own", cache, {}).cache
        again = build_fallback(tmp_path / "again", own)
    finally:
        os.umask(before)
    assert file_sha256(again) == file_sha256(wheel)


@pytest.mark.slow
def test_the_wheel_contains_exactly_the_files_of_the_package(wheel: Path, project: FallbackProject) -> None:
    contained = {name: data for name, data in read_zip(wheel).items() if ".dist-info/" not in name}
    assert contained == project.members
    assert "flash_attention_amd/py.typed" in contained


@pytest.mark.slow
def test_a_build_is_cached_until_a_source_changes(
    checkout: Path, cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    built: list[Path] = []

    def pip_wheel(_environment: object, source: Path, folder: Path, _epoch: int, _environ: object) -> Path:
        built.append(source)
        return write_wheel(folder, read_fallback_project())

    monkeypatch.setattr("wheelfactory.build.products.pip_wheel", pip_wheel)
    own = make_machine(tmp_path / "own", cache, {}).cache
    for folder in ("first", "second"):
        build_fallback(tmp_path / folder, own)
    assert len(built) == 1
    (checkout / "README.md").write_text("another description\n")
    build_fallback(tmp_path / "third", own)
    assert len(built) == 2


def test_a_project_file_without_static_metadata_is_an_error_that_names_it(checkout: Path) -> None:
    path = checkout / "pyproject.toml"
    text = path.read_text()
    for old, new, reason in (
        ('version = "0.1.0"', 'dynamic = ["version"]', "version"),
        ('name = "flash-attention-amd"', 'name = "flash-attn"', "name"),
        ("dependencies = [", "dependencies = ", "line"),  # not TOML
    ):
        assert old in text
        path.write_text(text.replace(old, new))
        with pytest.raises(InputError, match="cannot read flash-attention-amd") as refused:
            read_fallback_project()
        assert refused.value.which.startswith(f"{path}: ")
        assert reason in refused.value.which


# -- verified


@pytest.mark.slow
def test_every_required_gate_passes(cli: Cli, wheel: Path, cache: Path) -> None:
    shown = cli("verify", wheel, "--cache", cache, "--json")
    assert shown.code == 0, shown.out
    assert "code of the wheels ran with your rights" in shown.err
    gates = {gate["gate"]: gate for gate in json.loads(shown.out)["gates"]}
    assert tuple(gates) == ("archive", "identity", "record", "contents", "import", "numbers")
    assert all(gate["status"] == "passed" and gate["required"] for gate in gates.values())
    assert gates["numbers"]["figures"]


def test_the_sources_require_only_torch(project: FallbackProject) -> None:
    """ROCm's torch has its own Triton, and pip would replace it with the CUDA one."""
    assert project.requires == ("torch>=2.5",)


def differing(project: FallbackProject) -> Iterator[tuple[dict[str, Any], str]]:
    """Changes of a wheel against its sources, and what the only finding says."""
    yield {"metadata": metadata(project, requires=())}, "expected 'Requires-Dist: torch>=2.5'"
    members, dist_info = project.members, {"licenses/LICENSE": project.build_files["LICENSE"]}
    yield {"members": {**members, "flash_attention_amd/__init__.py": b"print('hello')\n"}}, "hello"
    yield {"members": {**members, "flash_attention_amd/more.py": b""}}, "more.py: expected no such file"
    without = {name: data for name, data in members.items() if not name.endswith("py.typed")}
    yield {"members": without}, "expected flash_attention_amd/py.typed, found no such file"
    # a build record would claim a cell; entry points would put programs on PATH
    for member in (BUILD_RECORD_NAME, "entry_points.txt"):
        yield {"dist_info_members": {**dist_info, member: b"x"}}, member


def test_a_wheel_that_differs_from_the_checkout_is_refused(
    given: Context, project: FallbackProject, tmp_path: Path
) -> None:
    def refused(path: Path) -> tuple[str, str]:
        """The only static gate that refuses a wheel, and its only finding."""
        results = verify(path, selected=runs_on_publish, context=given)
        ((gate, finding),) = [(result.gate, str(finding)) for result in results for finding in result.findings]
        return gate, finding

    results = verify(write_wheel(tmp_path, project), selected=runs_on_publish, context=given)
    assert {result.status for result in results} == {Status.PASSED}, "unchanged"
    for number, (changes, found) in enumerate(differing(project)):
        gate, finding = refused(write_wheel(tmp_path / str(number), project, **changes))
        assert (gate, found in finding) == ("contents", True), finding
    older = write_wheel(tmp_path / "older", project, version="0.0.9", metadata=metadata(project))
    gate, finding = refused(older.rename(tmp_path / project.filename))
    assert (gate, "found flash_attention_amd-0.0.9.dist-info" in finding) == ("identity", True)


def test_another_file_name_is_refused(given: Context, project: FallbackProject, tmp_path: Path) -> None:
    for changes, found in (
        ({"version": "9.9.9"}, "flash_attention_amd-9.9.9-py3-none-any.whl"),
        ({"tags": "cp311-none-any"}, "cp311-none-any"),
    ):
        results = verify(write_wheel(tmp_path, project, **changes), selected=runs_on_publish, context=given)
        findings = {result.gate: result.findings for result in results if result.findings}
        assert set(findings) == {"identity", "contents"}  # METADATA or WHEEL differs too
        assert findings["identity"][0].expected == project.filename
        assert found in findings["identity"][0].found


def test_an_oversized_wheel_is_refused(given: Context, project: FallbackProject, tmp_path: Path) -> None:
    description = os.urandom(1_010_000).hex()
    path = write_wheel(tmp_path, project, metadata=metadata(project) + description)
    results = verify(path, selected=runs_on_publish, context=given)
    (contents,) = [result for result in results if result.status is Status.FAILED]
    assert contents.findings[-1].expected == "0 to 1,000,000 bytes"


def test_code_of_a_refused_wheel_never_runs(given: Context, project: FallbackProject, tmp_path: Path) -> None:
    path = write_wheel(tmp_path, project, members={"flash_attention_amd/__init__.py": b""})
    *_, imported, computed = verify(path, context=given)
    assert {imported.status, computed.status} == {Status.NOT_RUN}
    with pytest.raises(VerificationError):
        as_addition(path, (imported, computed))


@pytest.mark.slow
def test_verify_of_a_release_directory_includes_it_and_skips_another_version(
    cli: Cli, checkout: Path, wheel: Path, cache: Path
) -> None:
    publish(DirectoryPublisher(Path("release")), [as_addition(wheel, PASSED)])
    shown = cli("verify", "release", "--cache", cache)
    assert (shown.code, shown.out.splitlines()[0]) == (0, f"{wheel.name}: verified")
    set_version(checkout, "0.2.0")
    shown = cli("verify", "release", "--cache", cache)
    assert (shown.code, shown.out) == (2, "")
    assert f"skipping {wheel.name}: this checkout can only verify its own version" in shown.err
    assert "error: no wheels: the manifest of release names none" in shown.err
    shown = cli("verify", wheel, "--cell", TRITON.id)
    assert (shown.code, shown.out) == (2, "")
    assert f"error: this wheel has no cell: {wheel.name}" in shown.err


@pytest.mark.slow
def test_a_package_that_imports_more_than_torch_is_refused(
    cli: Cli, checkout: Path, cache: Path, project: FallbackProject
) -> None:
    """The environment has einops for other wheels, which must not hide the missing requirement."""
    append_to_package(checkout, "import einops")
    built = cli("build", NAME, "--cache", cache).out.strip()
    shown = cli("verify", built, "--cache", cache)
    assert shown.code == 3
    assert "import of einops halted" in shown.out
    assert "not run  numbers (an earlier gate refused the wheel)" in shown.out


@pytest.mark.slow
def test_publish_refuses_wrong_numbers(cli: Cli, checkout: Path, cache: Path) -> None:
    append_to_package(
        checkout,
        "_right = flash_attn_func\n"
        "def flash_attn_func(q, k, v, *more, **options):\n"
        "    return _right(q * 1.01, k, v, *more, **options)\n",
    )
    built = cli("build", NAME, "--cache", cache).out.strip()
    shown = cli("publish", "release", built, "--cache", cache)
    assert shown.code == 3
    assert "numbers: " in shown.err
    assert "output of full float16 with an error of at most" in shown.err
    assert not Path("release/manifest.jsonl").exists()


@pytest.mark.slow
def test_a_cached_proof_is_used_only_while_it_passes(
    wheel: Path, given: Context, project: FallbackProject, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Bounds may have become stricter since; a failure is never cached."""
    asked: list[str] = []
    answers = ["9.9.9", project.version]

    def run(_subject: object, question: ProofKey, kind: type[ProgramReport]) -> ProgramReport:
        asked.append(question.program.name)
        return kind.model_validate({"version": answers.pop(0)})

    monkeypatch.setattr("wheelfactory.verify.fallback._run", run)
    subject = ProductSubject(Wheel.open(wheel), given, project=pin_product(NAME, given))
    assert check_fallback_import(subject).status is Status.FAILED
    assert not (tmp_path / "cache/proofs").exists()
    assert [check_fallback_import(subject).status for _ in range(2)] == [Status.PASSED, Status.PASSED]
    assert asked == ["import_package.py"] * 2
    (kept,) = (tmp_path / "cache/proofs").iterdir()
    kept.write_text(kept.read_text().replace(project.version, "9.9.9"))
    answers.append(project.version)
    assert check_fallback_import(subject).status is Status.PASSED
    assert len(asked) == 3


# -- published


@pytest.fixture
def job_release(project: FallbackProject, tmp_path: Path) -> Path:
    """A release directory as a job uploads it: the wheel, and a row with its gate results."""
    path = write_wheel(tmp_path / "made", project)
    publish(DirectoryPublisher(tmp_path / "job_release"), [(read_wheel_row(path, PASSED), path)])
    return tmp_path / "job_release"


@pytest.mark.slow
def test_the_wheel_named_flash_attn_passes_its_gates_and_is_in_an_index_of_its_own(cache: Path, tmp_path: Path) -> None:
    machine = small_machine(cache, os.environ)
    made = build_wheel(pin_product(FLASH_ATTN_FALLBACK, machine), tmp_path, cache)
    row, _ = as_addition(made, verify(made, context=machine))
    assert [gate.gate for gate in row.gates] == ["archive", "identity", "record", "contents", "import"]
    assert (row.project, row.version, row.cell, row.index_key) == ("flash-attn", "2.6.3+fallback", None, ("fallback",))
    assert unverified_reason(row.model_copy(update={"gates": ()}), is_published=False)

    assert "; the flash-attn of these only simple/fallback/." in Site(machine.matrix, [row]).packages_page()

    tamper(made, {"flash_attn/bert_padding.py": b""})
    results = verify(made, selected=runs_on_publish, context=machine)
    assert {result.gate for result in results if result.findings} == {"record", "contents"}


def test_the_gates_of_a_row_are_checked_again_on_its_file_unless_this_checkout_is_of_another_version(
    checkout: Path, job_release: Path, given: Context, caplog: pytest.LogCaptureFixture
) -> None:
    append_to_package(checkout, "# changed later")
    newer = read_fallback_project()
    write_wheel(plain_folder(NAME, newer.version, newer.identity, given.cache), newer)
    with pytest.raises(VerificationError, match=r"contents: "):
        read_additions(job_release, context=given)
    set_version(checkout, "0.2.0")  # whose sources are not there to compare it with; cells are published without it
    with caplog.at_level("INFO"):
        assert read_additions(job_release, context=given) == ()
    assert "skipping flash_attention_amd-0.1.0" in caplog.text


def test_it_is_missing_until_a_release_has_its_version(
    checkout: Path, project: FallbackProject, given: Context, tmp_path: Path
) -> None:
    publisher = DirectoryPublisher(tmp_path / "release")

    def missing() -> list[str]:
        found = find_missing_products(publisher, [TRITON], context=given)
        return [project.wheel for project in found if project.name == NAME]

    assert missing() == [project.filename]
    publish(publisher, [as_addition(write_wheel(tmp_path / "made", project), PASSED)])
    assert missing() == []
    set_version(checkout, "0.2.0")
    assert missing() == [read_fallback_project().filename]
    (publisher.wheels_dir / project.filename).unlink()
    set_version(checkout, "0.1.0")
    assert missing() == [project.filename]


# -- part of a run


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The cells whose build started; nothing is built."""
    found: list[str] = []

    def build_none(_pipeline: CellPipeline, cells: Sequence[Cell]) -> list[Failure]:
        found.extend(cell.id for cell in cells)
        return []

    monkeypatch.setattr(running, "build_in_parallel", build_none)
    return found


def run(given: Context, folder: Path, to_build: tuple[Cell, ...] = (TRITON,)) -> tuple[Failure, ...]:
    """Run the Triton cell, which is published unless it is to be built."""
    published = () if to_build else (TRITON,)
    worklist = Worklist(to_build=to_build, published=published, unbuildable=())
    return run_worklist(local_executor(given), worklist, DirectoryPublisher(folder), context=given)


def test_its_failure_is_reported_and_does_not_stop_the_cells(
    given: Context, started: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_torch(_cache: Path) -> None:
        raise BuildError("no CPU torch", "for this Python", "run with another")

    monkeypatch.setattr("wheelfactory.build.products.make_build_environment", no_torch)
    failures = run(given, tmp_path / "release")
    assert started == [TRITON.id]
    assert [(one.name, one.error.what) for one in failures] == [(name, "no CPU torch") for name in OFFERED_PRODUCTS]
    assert exit_code(failures) == BUILD_FAILED


def test_it_is_built_after_the_cells_also_by_a_later_run_but_not_when_the_time_is_up(
    given: Context, started: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    built_after: list[list[str]] = []

    def build_none(_pipeline: CellPipeline, projects: Iterable[PinnedProject]) -> Iterator[Failure]:
        built_after.extend(list(started) for _ in projects)
        return iter(())

    monkeypatch.setattr(CellPipeline, "add_products", build_none)
    assert run(given, tmp_path / "interrupted", to_build=()) == ()
    assert run(given, tmp_path / "release") == ()
    assert built_after == [[]] * len(OFFERED_PRODUCTS) + [[TRITON.id]] * len(OFFERED_PRODUCTS)
    built_after.clear()
    late = Failure(TRITON.id, RunAgainError("time limit reached", "setup.py", "run the same command again"))
    monkeypatch.setattr(running, "build_in_parallel", lambda *_: [late])
    assert run(given, tmp_path / "late") == (late,)
    assert built_after == []
