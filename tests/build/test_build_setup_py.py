"""A run of setup.py: the files beside its wheel are read, or refused with the reason."""

from __future__ import annotations

import tarfile
from pathlib import Path

import pytest

from wheel_factory import CK, MATRIX
from wheelfactory.build.executor import BuildCommand, BuildHost
from wheelfactory.build.recipe import Recipe
from wheelfactory.build.setup_py import RawWheel, SetupExtras, SetupRun, run_setup
from wheelfactory.build.sources import Source
from wheelfactory.core.errors import BuildError, SourceError
from wheelfactory.core.host import Host
from wheelfactory.core.label import Label
from wheelfactory.core.progress import ProgressCallback, ignore_progress


def run(folder: Path, toolchain: str | None, **variables: str) -> RawWheel:
    """Run a setup.py that leaves this as toolchain.json (None: no such file)."""
    (folder / "flash_attn").mkdir()
    (folder / "flash_attn/setup.py").write_text('os.environ["MAX_JOBS"]')
    with tarfile.open(folder / "source.tar", "w") as tar:
        tar.add(folder / "flash_attn", "flash_attn")

    def build(command: BuildCommand, _part: ProgressCallback) -> str:
        raw = Path(command.environ["RAW_DIR"])
        raw.mkdir()
        if toolchain is not None:
            (raw / "toolchain.json").write_text(toolchain)
        return f"{raw / 'made.whl'}\n"

    recipe = Recipe(CK, Label.from_cell(CK), MATRIX.archs(CK), jobs=1, setup_variables=variables)
    place = BuildHost(Host(1, 1.0), Path("python"), Path("ninja"), environ={}, run=build)
    setup = SetupRun(recipe, Source(folder / "source.tar", "sha256:0", 0), place, folder / "scratch")
    return run_setup(setup, folder / "logs/cell.log", SetupExtras(), ignore_progress)


@pytest.mark.parametrize(
    ("toolchain", "message"),
    [("{", "toolchain.json: Invalid JSON"), ("{}{", "Invalid JSON"), (None, "No such file or directory")],
)
def test_an_unreadable_toolchain_is_an_error_with_file_and_log(
    tmp_path: Path, toolchain: str | None, message: str
) -> None:
    (tmp_path / "good").mkdir()
    assert run(tmp_path / "good", '{"python": "3.11"}').toolchain.python == "3.11"
    with pytest.raises(BuildError, match=r"^damaged toolchain file: .*toolchain\.json") as refused:
        run(tmp_path, toolchain)
    assert message in refused.value.which
    assert str(tmp_path / "logs/cell.log") in refused.value.hint


def test_a_setup_py_that_reads_other_variables_is_refused_before_it_runs(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match=r"^setup\.py of this release does not read: GPU_ARCHS, for "):
        run(tmp_path, "{}", MAX_JOBS="2", GPU_ARCHS="gfx942", FLASH_ATTENTION_TRITON_AMD_ENABLE="FALSE")
