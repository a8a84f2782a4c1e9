"""`doctor`, `verify` and `ci check` end with a code other than 0 whenever they print a problem, as their help says."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest

from command_line import Cli
from release_factory import flash_attn_wheel, make_release
from wheel_factory import tamper
from wheelfactory.cli import main
from wheelfactory.core.published import MANIFEST_NAME
from wheelfactory.release.manifest import manifest_bytes, read_manifest

CELL = "fa2.8.3-rocm6.4-torch2.9.1-py3-triton"
WHEEL = "flash_attn-2.8.3+rocm64torch2.9triton-1-py3-none-any.whl"
ROWS = (
    ("verify --from {release} {wheel}", 0, "passed"),
    ("verify --from {release} {altered}", 3, "refused"),
    ("verify --from {stale} {wheel}", 3, "refused"),
    ("verify --quick {altered}", 3, "refused"),
    ("verify --from {away} {wheel}", 2, "error: "),
    ("ci check {empty}", 0, "nothing is published"),
    ("ci check {yanked}", 3, "yanked: drift, "),
    ("ci check {release} --site {away}", 2, "error: cannot read the manifest"),
    ("doctor {release}", 1, "Fix this first"),
    ("doctor {away}", 2, "error: cannot read the manifest"),
    ("doctor --python {empty}/python {release}", 2, "error: cannot examine this Python"),
    ("doctor --backend none", 2, "error: bad arguments"),
)
INSTALLS = "verify --quick"
"""It imports the wheel, where a real torch is."""


@pytest.fixture
def release(tmp_path: Path) -> Path:
    folder = tmp_path / "release"
    make_release(folder, [flash_attn_wheel(tmp_path / "made", CELL)])
    return folder


@pytest.mark.parametrize(
    ("command", "code", "printed"),
    [pytest.param(*row, id=row[0], marks=[pytest.mark.slow] * row[0].startswith(INSTALLS)) for row in ROWS],
)
def test_a_command_that_prints_a_problem_ends_with_the_code_of_its_help(
    command: str, code: int, printed: str, release: Path, tmp_path: Path, cli: Cli
) -> None:
    places = {name: tmp_path / name for name in ("empty", "stale", "altered")}
    places["empty"].mkdir()
    make_release(places["stale"], [flash_attn_wheel(tmp_path / "other", CELL.replace("2.8.3", "2.7.4.post1"))])
    places["altered"].mkdir()
    altered = tamper(Path(shutil.copy(release / "wheels" / WHEEL, places["altered"])), {"more.py": b"x = 1\n"})
    rows = [row.model_copy(update={"yanked": "old"}) for row in read_manifest(release)]
    shutil.copytree(release, tmp_path / "yanked")
    (tmp_path / "yanked" / MANIFEST_NAME).write_bytes(manifest_bytes(rows))  # its index is that of before
    known = {**places, "release": release, "wheel": release / "wheels" / WHEEL, "altered": altered}
    shown = cli(*command.format(**known, yanked=tmp_path / "yanked", away="http://127.0.0.1:9/").split())
    assert printed in shown.out + shown.err, (shown.out, shown.err)
    assert shown.code == code


@pytest.mark.parametrize(("command", "codes"), [("doctor", "012"), ("verify", "3"), ("ci check", "3")])
def test_every_code_of_the_help_has_a_row(command: str, codes: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main([*command.split(), "--help"])
    found = re.findall(r"(?:codes?:?|;) (\d) ", " ".join(capsys.readouterr().out.split()))
    assert "".join(found) == codes
    assert {*map(int, found)} - {0} <= {code for line, code, _ in ROWS if line.startswith(command)}
