"""The command line: exit codes, one error line with one hint, and only results on stdout."""

from __future__ import annotations

import argparse
import json
import os
import pwd
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path

import pytest

from command_line import Cli, CommandResult
from release_factory import content_of, flash_attn_wheel, links_on, make_release, stub_wheel
from wheelfactory.cli import CLOSED_PIPE, COMMANDS, MODULES, SUBCOMMANDS, WORKFLOW_COMMANDS, _parser, main
from wheelfactory.commands.options import prepare_cache
from wheelfactory.core.errors import BAD_INPUT, DONE, FAILED, VERIFICATION_FAILED, InputError
from wheelfactory.core.files import ROOT, lock_folder
from wheelfactory.core.published import MANIFEST_NAME
from wheelfactory.release.manifest import read_manifest
from wheelfactory.verify.result import GateResult

MATRIX = str(ROOT / "examples/seed-matrix.yaml")
CELL = "fa2.8.3-rocm6.1-torch2.6.0-py3-triton"
CK_CELL = "fa2.8.3-rocm6.1-torch2.6.0-cp310-ck"
CELLS = (CK_CELL, CELL, CK_CELL.replace("310", "311"), CK_CELL.replace("310", "312"))
ONLY = ("--matrix", MATRIX, "--only", "fa2.8.3-rocm6.1-torch2.6.0-*")
"""What selects `CELLS`."""
NAME = "flash_attn-2.8.3+rocm61torch2.6triton-1-py3-none-any.whl"
NAMES = [*COMMANDS, *(f"{name} {inner}" for name, below in SUBCOMMANDS.items() for inner in below)]
EITHER = "either publish, yank, add evidence or an attestation"


@pytest.fixture
def release(tmp_path: Path) -> Path:
    """A release with the wheel of `CELL` and einops, at ``release``."""
    folder, made = tmp_path / "release", tmp_path / "made"
    make_release(folder, [flash_attn_wheel(made, CELL), stub_wheel(made, "einops", "0.8.2")])
    return folder


def assert_refused(shown: CommandResult, code: int, error: str, hint: str) -> None:
    """Nothing but the code, the error and the hint."""
    assert shown.code == code
    assert shown.out == ""
    first, second = shown.err.splitlines()
    assert re.fullmatch(r"error: [^:]+: .*", first)
    assert first.startswith(f"error: {error}")
    assert second.startswith("hint: ")
    assert hint in second


def mistake(*arguments: str, error: str, hint: str) -> tuple[tuple[str, ...], str, str]:
    """A row of the table below."""
    return arguments, error, hint


MISTAKES = (
    mistake(error="bad arguments: the following arguments are required: COMMAND", hint="--help"),
    mistake("make", error="bad arguments: argument COMMAND: invalid choice: 'make'", hint="--help"),
    mistake("doctr", error="bad arguments: ", hint="did you mean doctor? run `wheelfactory --help`"),
    mistake("run", "--quik=1", error="bad arguments: unrecognized arguments: --quik=1", hint="did you mean --quick? "),
    mistake(
        "publish", "new", "--stage", "a.whl", error="bad arguments: unrecognized arguments: a.whl", hint="move the opt"
    ),
    mistake("bench", "trnd", error="bad arguments: ", hint="did you mean trend? run `wheelfactory bench --help`"),
    mistake("ci", error="bad arguments: the following arguments are required: COMMAND", hint="ci --help"),
    mistake("jobs", error="bad arguments: argument COMMAND: invalid choice: 'jobs'", hint="--help"),
    mistake("explain", error="bad arguments: ", hint="`wheelfactory explain --help`"),
    mistake("build", CELL, "--backend", "cuda", error="bad arguments: ", hint="build --help"),
    mistake("explain", "junk", error="neither a log nor a cell id: junk", hint="wheelfactory plan --all"),
    mistake(
        *("explain", "fa9.9-rocm6.1-torch2.5.1-cp310-ck"),
        error="no flash-attn 9.9 in the matrix: fa9.9-rocm6.1-torch2.5.1-cp310-ck",
        hint="known: 2.8.3.post2",
    ),
    mistake(
        *("explain", "fa2.8.3-rocm6.1-torch2.5.1-py3-triton", "--matrix", MATRIX),
        error="this combination cannot work: fa2.8.3-rocm6.1-torch2.5.1-py3-triton",
        hint="torch 2.5.1 brings Triton 3.1.0; the kernels of flash-attn 2.8.3 need >=3.2.0",
    ),
    mistake(
        *("explain", "fa2.6.3-rocm6.1-torch2.5.1-cp310-triton", "--matrix", MATRIX),
        error="this combination cannot work: fa2.6.3-rocm6.1-torch2.5.1-py3-triton",
        hint="flash-attn 2.6.3 has no triton backend",
    ),
    mistake(
        *("build", "2.8.3", "3.12", "2.6.0", "6.2", "--matrix", MATRIX),
        error="this combination cannot work: fa2.8.3-rocm6.2-torch2.6.0-cp312-ck",
        hint="torch 2.6.0 is not on the ROCm 6.2 index; it is on 6.1",
    ),
    mistake(
        "build", CELL, "--backend", "ck", error="bad arguments: --backend without four", hint="ends with its backend"
    ),
    mistake("build", error="not a cell: ", hint="2.8.3 3.11 2.9.1 6.4"),
    mistake("build", "2.8.3", "3.11", error="not a cell: 2.8.3 3.11", hint="2.8.3 3.11 2.9.1 6.4"),
    mistake("build", *"12345", error="not a cell: 1 2 3 4 5", hint="2.8.3 3.11 2.9.1 6.4"),
    mistake("build", "2.8.3", "3.11", "2.9.1", "1.2", error="unknown ROCm version", hint="matrix.yaml has: "),
    mistake("plan", "--only", "nothing", error="no cell matches: nothing", hint="glob"),
    mistake("plan", "--matrix", "absent.yaml", error="no such file: absent.yaml", hint="--matrix"),
    mistake("plan", "--matrix", "a-file", error="not YAML", hint="indentation"),
    mistake("matrix", "--published", "absent", error="no such manifest: absent", hint="name"),
    mistake("matrix", "--published", ".", error="no such manifest: manifest.jsonl", hint="release directory"),
    mistake("matrix", "--table", "--shards", error="bad arguments: argument --shards: not allowed", hint="--help"),
    mistake("status", "absent", error="no such manifest: absent", hint="release directory"),
    mistake("index", "absent", error="no such directory: absent", hint="release directory"),
    mistake("index", "a-file", error="not a directory: a-file", hint="name one"),
    mistake("publish", "new", error=f"{EITHER}: new", hint="--evidence REPORT"),
    mistake("publish", "new", "a.whl", "--yank", "b.whl", error=EITHER, hint="--yank NAME"),
    mistake("publish", ".", "--evidence", "absent", error="cannot read the report", hint="--json"),
    mistake("publish", "new", "--evidence", "a", error="no such directory", hint="name"),
    mistake("ci", "jobs", "absent", "--jobs", "x", error="no such directory: absent", hint="for a first release"),
    mistake("publish", "new", "--yank", "b.whl", error="no such directory: new", hint="release"),
    mistake("publish", "a-file", "a.whl", error="not a directory: a-file", hint="name one"),
    mistake("run", "--dest", "a-file", error="not a directory: a-file", hint="name one"),
    mistake("run", "--cache", "a-file", error="not a directory: a-file", hint="name one"),
    mistake("build", CELL, "--dest", "a-file", error="not a directory", hint="name one"),
    mistake("publish", "a-loop", "a.whl", error="not a directory: a-loop", hint="name one"),
    mistake("publish", "new", "a.txt", error="no such file: a.txt", hint="name a wheel"),
    mistake("inspect", ".", error="a folder, not a file: ", hint="give a wheel file"),
)


def test_a_mistake_is_one_error_line_and_one_hint(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "a-file").write_text("[")
    (tmp_path / "a-loop").symlink_to("a-loop")
    before = sorted(tmp_path.rglob("*"))
    for arguments, error, hint in MISTAKES:
        assert_refused(cli(*arguments), BAD_INPUT, error, hint)
        assert sorted(tmp_path.rglob("*")) == before, arguments


def _valued(*words: str) -> Iterator[tuple[str, ...]]:
    """Each command with one of its options that takes a value, of all commands that begin with these words."""
    parser: argparse.ArgumentParser = _parser(words)
    for word in words:
        parser = _below(parser)[word]
    for name in _below(parser):
        yield from _valued(*words, name)
    for action in parser._actions:
        if action.option_strings and action.nargs != 0:
            yield *words, action.option_strings[0]


def _below(parser: argparse.ArgumentParser) -> Mapping[str, argparse.ArgumentParser]:
    return next((action.choices for action in parser._actions if isinstance(action, argparse._SubParsersAction)), {})


MAY_BE_EMPTY = ("--archs", "--commit", "--extended", "--kernels-pending", "--reason", "--results", "--runner", "--site")


def test_an_option_is_empty_only_if_that_is_its_default() -> None:
    valued = list(_valued())
    assert {words[0] for words in valued} == {*COMMANDS} - {"inspect"}  # which has flags only
    parser_of = cache(_parser)
    for words in valued:
        option, message = words[-1], ""
        try:
            parser_of(words[:-1]).parse_args([*words, ""])
        except InputError as error:
            message = error.which
        is_refused = re.match(f"argument [^:]*{option}[^:]*: ", message) is not None
        assert is_refused == (option not in MAY_BE_EMPTY and words != ("ci", "batch", "--kernels")), words


def test_a_missing_or_empty_argument_is_refused(cli: Cli) -> None:
    for arguments in (("inspect", NAME), ("verify", NAME), ("publish", "new", NAME)):
        shown = cli(*arguments)
        assert (shown.code, shown.err.startswith(f"error: no such file: {NAME}\n")) == (BAD_INPUT, True)
    for command in (("inspect",), ("verify",), ("build",), ("validate",), ("index",), ("ci", "jobs")):
        assert_refused(cli(*command, ""), BAD_INPUT, error="bad arguments: argument ", hint="--help")


def test_the_cache_is_in_the_users_home_unless_a_variable_has_an_absolute_path(monkeypatch: pytest.MonkeyPatch) -> None:
    def cache_of(**environ: str) -> Path:
        return prepare_cache(argparse.Namespace(cache=None, environ=environ))

    assert cache_of(XDG_CACHE_HOME="/srv/caches") == Path("/srv/caches/wheelfactory")
    own = Path(pwd.getpwuid(os.getuid()).pw_dir, ".cache/wheelfactory")
    assert cache_of(HOME="", XDG_CACHE_HOME="") == cache_of(XDG_CACHE_HOME="caches") == cache_of() == own
    monkeypatch.setattr(os, "getuid", lambda: 4_000_000_000)  # as in a container: a user without an entry
    assert cache_of(HOME="/srv") == Path("/srv/.cache/wheelfactory")
    with pytest.raises(InputError, match="HOME is not set"):
        cache_of()


def test_a_damaged_toolchain_file_is_refused(cli: Cli, tmp_path: Path) -> None:
    path = flash_attn_wheel(tmp_path, CELL)
    (tmp_path / "toolchain.json").write_text("{")
    shown = cli("repair", path, "--cell", CELL, "--matrix", MATRIX)
    assert_refused(shown, BAD_INPUT, f"damaged toolchain file: {tmp_path}/toolchain.json", "build the wheel again")


@pytest.mark.parametrize(
    ("command", "others"),
    [("status", ()), ("index", ()), ("publish", ("--yank", NAME, "--reason", "broken"))],
    ids=["status", "index", "yank"],
)
def test_a_damaged_manifest_is_refused_and_nothing_is_changed(
    cli: Cli, release: Path, command: str, others: tuple[str, ...]
) -> None:
    with (release / MANIFEST_NAME).open("a") as file:
        file.write("{}\n")
    before = content_of(release)
    shown = cli(command, release, *others)
    assert_refused(shown, BAD_INPUT, f"not a manifest row: {release}/manifest.jsonl:3: format: missing", "restore it")
    assert content_of(release) == before


def test_a_release_that_another_run_holds_is_refused(cli: Cli, release: Path) -> None:
    with lock_folder(release):
        shown = cli("index", release)
    assert_refused(shown, FAILED, f"in use by another run: {release}", "wait for it")


def help_of(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    with pytest.raises(SystemExit) as done:
        main([*words, "--help"])
    shown = capsys.readouterr()
    assert (done.value.code, shown.err) == (DONE, "")
    return shown.out


def test_every_command_has_help_that_fits_80_columns_and_keeps_names_in_one_piece(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """argparse breaks `--dry-run` and `flash-attn` at the hyphen."""
    monkeypatch.setenv("COLUMNS", "80")
    for name in NAMES:
        shown = help_of(capsys, *name.split())
        assert shown.startswith(f"usage: wheelfactory {name} ")
        if name in COMMANDS:  # the usage of a subcommand has long options, which argparse does not break
            assert [line for line in shown.splitlines() if len(line) > 80 or line.endswith("-")] == []
        for inner, summary in SUBCOMMANDS.get(name, {}).items():
            assert f" {inner} {summary}" in " ".join(shown.split())


def test_help_lists_user_commands_then_workflow_commands_then_exit_codes(capsys: pytest.CaptureFixture[str]) -> None:
    shown = " ".join(help_of(capsys).split())
    users, _, workflows = shown.partition(" commands for workflows: ")
    assert all(f" {name} {summary}" in users for name, summary in COMMANDS.items() if name not in WORKFLOW_COMMANDS)
    assert " ci " not in users
    assert workflows.startswith(f"ci: {COMMANDS['ci']} options: ")
    assert "exit codes: 0 done, 1 failed, 2 bad matrix or arguments, 3 verification failed, 4 build" in workflows


PRINT_IMPORTED = """\
import sys
from wheelfactory import cli
try:
    cli.main([*sys.argv[1:], "--help"])
finally:
    print("imported:", *sys.modules)
"""


def test_no_command_is_imported_but_the_chosen_one() -> None:
    for name in ("matrix", "ci", "ci jobs"):
        command = [sys.executable, "-c", PRINT_IMPORTED, *name.split()]
        done = subprocess.run(command, env=ENVIRON, capture_output=True, text=True, check=True)
        imported = set(done.stdout.rpartition("imported:")[2].split())
        inner = {f"ci {other}": MODULES.get(other, f"ci.{other}") for other in SUBCOMMANDS["ci"]}
        modules = {other: inner.get(other, other) for other in NAMES if other not in SUBCOMMANDS}
        found = {module for module in modules.values() if f"wheelfactory.commands.{module}" in imported}
        assert found == {modules[name]} if name in modules else not found


def test_version_shows_the_version_of_pyproject(capsys: pytest.CaptureFixture[str]) -> None:
    (shown,) = re.findall('^version = "(.+)"$', (ROOT / "pyproject.toml").read_text(), re.MULTILINE)
    with pytest.raises(SystemExit):
        main(["--version"])
    assert capsys.readouterr().out == f"wheelfactory {shown}\n"


def test_matrix_prints_the_table_of_readme(cli: Cli) -> None:
    shown = cli("matrix", "--matrix", ROOT / "matrix.yaml", "--table")
    table = (ROOT / "README.md").read_text().partition("<!-- ./factory matrix --table -->\n\n")[2]
    assert (shown.code, shown.out) == (DONE, table.partition("\n<!-- end -->")[0])


def test_inspect_as_json_is_one_object_a_wheel(cli: Cli, release: Path) -> None:
    shown = cli("inspect", "--json", *sorted((release / "wheels").glob("*.whl")))
    assert [json.loads(line)["distribution"]["name"] for line in shown.out.splitlines()] == ["einops", "flash-attn"]
    assert (shown.code, shown.err) == (DONE, "")


def test_status_is_done_if_every_cell_selected_is_published(cli: Cli, release: Path) -> None:
    assert cli("status", release, "--matrix", MATRIX, "--only", CELL).code == DONE


def test_index_writes_all_generated_files(cli: Cli, release: Path) -> None:
    kept = content_of(release)
    cli("index", release)
    before = content_of(release)
    assert kept.items() < before.items()
    assert {"index.html", "search/data.js", "doctor.py", "packages.md"} < before.keys()
    for name in before.keys() - kept.keys():
        (release / name).unlink()
    shutil.rmtree(release / "simple")
    shown = cli("index", release)
    assert (shown.code, shown.out, shown.err) == (DONE, f"{release}/simple: 6 pages\n", "")
    assert content_of(release) == before


def test_index_keeps_pages_without_a_manifest(cli: Cli, tmp_path: Path) -> None:
    page = tmp_path / "simple/other/index.html"
    page.parent.mkdir(parents=True)
    page.write_text("somebody else's")
    shown = cli("index", tmp_path)
    assert (shown.code, shown.out) == (BAD_INPUT, "")
    assert f"error: no such manifest: {tmp_path}/manifest.jsonl" in shown.err
    assert page.read_text() == "somebody else's"


@pytest.fixture
def gates_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every wheel counts as verified; the gates have their own tests."""
    passed = (GateResult.from_findings("stand-in", []),)
    monkeypatch.setattr("wheelfactory.commands.publish.run_gates", lambda path, **_: passed)


@pytest.mark.usefixtures("gates_pass")
def test_publish_puts_a_verified_wheel_into_release_and_index(cli: Cli, release: Path, tmp_path: Path) -> None:
    wheel = flash_attn_wheel(tmp_path, CK_CELL)
    shown = cli("publish", "release", wheel, "--matrix", MATRIX)
    assert shown == (DONE, f"{release}: 3 files published\n", "")
    (row,) = (row for row in read_manifest(release) if row.cell == CK_CELL)
    assert [gate.gate for gate in row.gates] == ["stand-in"]
    assert [link.text for link in links_on(release / "simple/rocm61/torch2.6/ck/flash-attn/index.html")] == [wheel.name]


@pytest.mark.usefixtures("gates_pass")
def test_publish_below_a_file_is_refused(cli: Cli, release: Path) -> None:
    shown = cli("publish", release / MANIFEST_NAME / "below", release / "wheels" / NAME, "--matrix", MATRIX)
    assert_refused(shown, FAILED, f"Not a directory: {release}/manifest.jsonl/below", "run the same command again")


def test_publish_removes_scratch_of_a_killed_run(cli: Cli, release: Path) -> None:
    left = release / "wheels/.scratch-left/half.whl"
    left.parent.mkdir()
    left.write_bytes(b"half")
    cli("publish", release, "--yank", NAME, "--reason", "broken")
    assert not left.parent.exists()


@pytest.mark.slow
def test_publish_refuses_a_wheel_that_a_gate_refuses(cli: Cli, tmp_path: Path) -> None:
    wheel = flash_attn_wheel(tmp_path, CK_CELL)  # compiled, and its record does not say on which glibc
    shown = cli("publish", "new", wheel, "--matrix", MATRIX)
    assert shown.code == VERIFICATION_FAILED
    assert f"error: verification failed: {wheel.name}\n  identity: " in shown.err
    assert shown.err.endswith("hint: nothing was published\n")
    assert not (tmp_path / "new").exists()


@pytest.mark.slow
def test_verify_shows_each_gate_and_each_finding(cli: Cli, tmp_path: Path) -> None:
    wheel = stub_wheel(tmp_path, "einops", "0.8.2")
    shown = cli("verify", wheel)
    assert (shown.code, shown.err) == (VERIFICATION_FAILED, "")  # no gate ran its code
    refused, archive, identity, finding = shown.out.splitlines()
    assert refused == f"{wheel.name}: refused"
    assert archive.startswith("  passed   archive")
    assert identity.startswith("  failed   identity")
    assert finding.strip().startswith(f"{wheel.name}: expected a build record, found none (run `wheelfactory build`")


@pytest.mark.slow
def test_verify_of_several_wheels_or_of_a_release_does_not_stop_at_a_bad_one(
    cli: Cli, release: Path, tmp_path: Path
) -> None:
    wheels = [stub_wheel(tmp_path, name, "0.8.2") for name in ("einops", "other")]
    for arguments, names in ((wheels, [wheel.name for wheel in wheels]), ([release], [NAME])):  # stand-ins hold nothing
        shown = cli("verify", "--json", *arguments)
        assert shown.code == VERIFICATION_FAILED
        assert [json.loads(line)["file"] for line in shown.out.splitlines()] == names
    (release / "wheels" / NAME).unlink()
    shown = cli("verify", release)
    assert (shown.code, "expected a published wheel, found no such file" in shown.out) == (VERIFICATION_FAILED, True)
    cli("publish", release, "--yank", NAME, "--reason", "gone")
    assert_refused(cli("verify", release), BAD_INPUT, error=f"no wheels: the manifest of {release}", hint="release")
    empty = tmp_path / "empty"
    empty.mkdir()
    assert_refused(cli("verify", empty), BAD_INPUT, error=f"no wheels: the manifest of {empty}", hint="release")


def test_an_unknown_extended_gate_is_refused(cli: Cli, release: Path) -> None:
    for name in ("gpus", "import", "all,gpu", "ahead of time"):
        shown = cli("verify", release, "--extended", name)
        assert_refused(shown, BAD_INPUT, "unknown extended gate", "choose from all, ")


def test_yank_marks_the_wheel_in_manifest_and_index(cli: Cli, release: Path) -> None:
    shown = cli("publish", release, "--yank", NAME, "--reason", "wrong <kernels>")
    assert shown == (DONE, f"{release}: {NAME} is yanked; 2 files published\n", "")
    assert {row.yanked for row in read_manifest(release)} == {None, "wrong <kernels>"}
    (link,) = links_on(release / "simple/rocm61/torch2.6/triton/flash-attn/index.html")
    assert link.attrs["data-yanked"] == "wrong <kernels>"


@pytest.mark.parametrize(
    ("error", "shown"),
    [
        (OSError(28, "No space left on device"), "No space left on device: while reading or writing"),
        (TimeoutError(), "TimeoutError: while reading or writing"),
    ],
    ids=["full", "silent"],
)
def test_an_error_of_the_system_without_a_file_has_the_form_of_all_errors(
    cli: Cli, release: Path, monkeypatch: pytest.MonkeyPatch, error: OSError, shown: str
) -> None:
    def fail(*_: object) -> None:
        raise error

    monkeypatch.setattr("wheelfactory.commands.index.write_pages", fail)
    assert_refused(cli("index", release), FAILED, shown, "run the same command again")


COMMAND = (sys.executable, "-m", "wheelfactory")
ENVIRON = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
"""With output buffered, as users have it."""


def start(*arguments: str | Path, stdout: int = subprocess.PIPE) -> subprocess.Popen[str]:
    """Start a command that can be interrupted, even if SIGINT is ignored in the process that runs the tests."""
    return subprocess.Popen(
        [*COMMAND, *arguments],
        env=ENVIRON,
        stdout=stdout,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )


def test_a_full_disk_is_an_error_and_the_program_exits_with_the_code_of_main() -> None:
    with Path("/dev/full").open("w") as full, start("explain", CELL, "--matrix", MATRIX, stdout=full.fileno()) as done:
        _, errors = done.communicate()
    shown = CommandResult(done.returncode, "", errors)
    assert_refused(shown, FAILED, "No space left on device: ", "run the same command")


@pytest.mark.parametrize(
    ("arguments", "code"),
    [(("explain", CELL, "--matrix", MATRIX), CLOSED_PIPE), (("plan", "--help"), DONE)],
    ids=["few lines", "help"],
)
def test_a_closed_pipe_is_no_error(arguments: tuple[str, ...], code: int) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    with start(*arguments, stdout=writer) as process:
        os.close(writer)
        _, errors = process.communicate()
    assert process.returncode == code
    assert not re.search("error|exception", errors, re.IGNORECASE)


def test_ctrl_c_ends_a_command_with_one_error_line_and_a_hint(tmp_path: Path) -> None:
    """While it reads a manifest that never comes, so that it is certain where it is."""
    os.mkfifo(tmp_path / MANIFEST_NAME)
    with start("index", tmp_path) as process, (tmp_path / MANIFEST_NAME).open("wb"):  # opens when the command opens it
        process.send_signal(signal.SIGINT)
        out, errors = process.communicate()
    assert_refused(
        CommandResult(process.returncode, out, errors), FAILED, "interrupted: ", "run the same command again"
    )


@pytest.fixture
def unprivileged() -> tuple[str, ...]:
    """A command prefix that takes from root the right to read everything; empty for other users."""
    if os.geteuid() != 0:
        return ()
    prefix = ("setpriv", "--bounding-set=-all", "--inh-caps=-all")
    if not shutil.which("setpriv") or subprocess.run([*prefix, "true"], check=False).returncode:
        pytest.skip("root reads everything, and setpriv cannot take that away here")
    return prefix


def test_an_unreadable_release_is_refused(release: Path, unprivileged: tuple[str, ...]) -> None:
    release.chmod(0)
    command: list[str | Path] = [*unprivileged, *COMMAND, "publish", release, "--yank", NAME]
    done = subprocess.run(command, env=ENVIRON, capture_output=True, text=True)
    release.chmod(0o755)
    shown = CommandResult(done.returncode, done.stdout, done.stderr)
    assert_refused(shown, FAILED, f"Permission denied: {release}", "run the same command again")
