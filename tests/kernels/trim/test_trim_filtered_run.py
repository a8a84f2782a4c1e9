"""Filters meet the generator commands of setup.py, or the release is compiled without them and the reason is said."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from dispatch_release import BINDING, FILTER, GENERATE, make_dispatch_release
from wheelfactory.kernels.source_list import SourceList, list_sources
from wheelfactory.kernels.trim.filtered_run import FilteredCommand, UnprovedError, filter_commands
from wheelfactory.matrix.facts import GeneratorFilter
from wheelfactory.matrix.load import load_matrix

COMMANDS = [("python", "ck/generate.py", "-d", direction, "--output_dir", "build") for direction in ("fwd", "bwd")]


def filters(*pairs: tuple[str, str]) -> list[GeneratorFilter]:
    return [GeneratorFilter(direction=direction, filter=pattern) for direction, pattern in pairs]


def test_a_filter_belongs_to_the_command_of_its_direction() -> None:
    assert filter_commands(COMMANDS, filters(("bwd", "*_a_*"))) == (FilteredCommand(COMMANDS[1][1:], "*_a_*"),)


@pytest.mark.parametrize(
    "commands",
    [COMMANDS[1:], [*COMMANDS, COMMANDS[0]], [(*COMMANDS[0], "--filter", "*")], [(*COMMANDS[0], "-d", "bwd")]],
    ids=["none", "twice", "with a filter", "two directions"],
)
def test_a_direction_without_one_plain_command_is_not_filtered(commands: list[tuple[str, ...]]) -> None:
    with pytest.raises(UnprovedError, match="does not run the generator once, without a filter, for fwd"):
        filter_commands(commands, filters(("fwd", "*_a_*")))


def listed(folder: Path, binding: str = BINDING, pattern: str = FILTER, generator: str = GENERATE) -> SourceList:
    """The sources of the small release with this binding, filter and generator."""
    matrix = make_dispatch_release(folder, folder, binding, generator)
    matrix.write_text(matrix.read_text().replace(FILTER, pattern))
    return list_sources("2.8.3", load_matrix(matrix).flash_attn["2.8.3"], folder, os.environ)


def test_proved_filters_leave_sources_out_and_are_part_of_the_list(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    for _ in range(2):  # generated, then cached
        caplog.clear()
        found = listed(tmp_path)
        assert found.sources == (
            "fmha_fwd_api",
            "fmha_fwd_d64_fp16_nlogits_mask_lse",
            "fmha_fwd_d64_fp16_nlogits_nmask_lse",
        )
        assert (found.left_out, found.unproved) == (6, "")
        command = ("csrc/ck/generate.py", "-d", "fwd", "--output_dir", "build")
        assert found.filtered == (FilteredCommand(command, FILTER),)
        assert "flash-attn 2.8.3: left out 6 kernel sources that no call can reach" in caplog.text


@pytest.mark.parametrize(
    ("binding", "pattern", "why"),
    [
        (BINDING.replace("has_lse = true", "has_lse = is_causal"), FILTER, "that a call can take are missing"),
        (BINDING, "*_nlogits_mask_*", "that a call can take are missing"),
        (BINDING, "*", "the filters leave nothing out"),
        ("", FILTER, "that a call can take are missing"),
    ],
    ids=["a binding that calls more", "a filter for more", "a filter for nothing", "no binding"],
)
def test_without_a_proof_all_sources_are_listed_and_the_reason_is_said_each_time(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, binding: str, pattern: str, why: str
) -> None:
    for _ in range(2):
        caplog.clear()
        found = listed(tmp_path, binding, pattern)
        assert (len(found.sources), found.filtered, found.left_out) == (9, (), 0)
        (message,) = (record.getMessage() for record in caplog.records if record.levelname == "WARNING")
        assert re.fullmatch(f"flash-attn 2.8.3: compiling all kernels, no proof for the filters: .*{why}.*", message)


def test_a_generator_that_fails_with_a_filter_is_asked_again_the_next_time(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    generator = GENERATE + "if options.filter != '*': raise SystemExit('no space left')\n"
    found = listed(tmp_path, generator=generator)
    assert (len(found.sources), found.filtered) == (9, ())
    assert re.search("compiling all kernels, no proof for the filters: .*no space left", caplog.text)
    assert not (tmp_path / "source-lists").exists()


def test_a_list_is_cached_for_its_filters(tmp_path: Path) -> None:
    assert listed(tmp_path).left_out == 6
    assert listed(tmp_path, pattern="*_nlogits_*").left_out == 4
    assert len(list((tmp_path / "source-lists").iterdir())) == 2
