"""The publish transaction with a publisher in memory: preconditions, order of steps, and refusals."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path

import pytest

from release_factory import PUBLISHED, additions, flash_attn_wheel
from validations import amd_validation
from wheelfactory.core.errors import PublishError
from wheelfactory.core.progress import ProgressCallback, ignore_progress
from wheelfactory.release.manifest import WheelRow, verified_archs
from wheelfactory.release.transaction import Asset, ConcurrentPublishError, add_evidence, publish, stage, yank
from wheelfactory.wheel.read import Wheel

CELL = "fa2.8.3-rocm6.4-torch2.9.1-py3-triton"
OTHER_CELL = "fa2.8.3-rocm7.2-torch2.9.1-py3-triton"


@dataclass
class Memory:
    """A publisher that only records its calls."""

    published: tuple[WheelRow, ...] = ()
    log: list[str] = field(default_factory=list)
    held: dict[str, bytes] = field(default_factory=dict)
    concurrent: list[tuple[WheelRow, ...]] = field(default_factory=list)
    """What other runs publish just before the next commits."""

    def rows(self) -> tuple[WheelRow, ...]:
        return self.published

    def has_wheel(self, row: WheelRow) -> bool:
        return {row.filename, f"{row.filename}.metadata"} <= self.held.keys()

    def put_asset(self, asset: Asset, part: ProgressCallback = ignore_progress) -> None:
        self.log.append(asset.name)
        self.held[asset.name] = asset.content if isinstance(asset.content, bytes) else asset.content.read_bytes()
        assert hashlib.sha256(self.held[asset.name]).hexdigest() == asset.sha256

    def put_attestation(self, wheel: str, sha256: str, bundle: bytes) -> bool:
        self.log.append(f"attestation of {wheel}")
        return hashlib.sha256(self.held[wheel]).hexdigest() == sha256

    def put_rows(self, rows: Sequence[WheelRow]) -> None:
        raise NotImplementedError

    def staged_rows(self) -> tuple[WheelRow, ...]:
        raise NotImplementedError

    def commit(self, rows: Sequence[WheelRow]) -> None:
        self.log.append("commit")
        if self.concurrent:
            self.published = self.concurrent.pop(0)
            raise ConcurrentPublishError("memory")
        self.published = tuple(rows)


@pytest.fixture
def place() -> Memory:
    return Memory()


@pytest.fixture
def wheel(tmp_path: Path) -> Path:
    return flash_attn_wheel(tmp_path / "made", CELL)


def test_published_again_a_wheel_keeps_its_first_row(place: Memory, wheel: Path) -> None:
    first = publish(place, additions([wheel]))
    assert place.held[f"{wheel.name}.metadata"] == Wheel.open(wheel).metadata_bytes, "byte for byte"
    ((row, path),) = additions([wheel])
    later = row.model_copy(update={"published": PUBLISHED + timedelta(days=1)})
    assert publish(place, [(later, path)]) == first


def test_a_name_with_other_bytes_is_refused_before_during_and_after_a_publish(
    place: Memory, tmp_path: Path, wheel: Path
) -> None:
    """In one call, published by another run meanwhile, and published before."""
    other = flash_attn_wheel(tmp_path / "other", CELL, content="changed = True")
    theirs = additions([other])[0][0]
    with pytest.raises(PublishError, match="already published with different content"):
        publish(place, additions([wheel, other]))
    assert list(place.published) == []
    place.concurrent = [(theirs,)]
    with pytest.raises(PublishError, match="already published with different content"):
        publish(place, additions([wheel]))
    log = list(place.log)
    with pytest.raises(PublishError, match="already published with different content") as refused:
        publish(place, additions([wheel]))
    assert refused.value.which == wheel.name
    assert "--yank" in refused.value.hint
    assert (list(place.published), place.log) == ([theirs], log)


def test_a_wheel_that_changed_since_it_was_verified_is_refused(place: Memory, wheel: Path) -> None:
    verified = additions([wheel])
    flash_attn_wheel(wheel.parent, CELL, content="changed = True")
    with pytest.raises(PublishError, match="changed since it was verified") as refused:
        publish(place, verified)
    assert refused.value.hint == "verify it again"
    assert place.log == []


def test_only_a_staged_wheel_is_published_without_its_file(place: Memory, wheel: Path) -> None:
    row = additions([wheel])[0][0]
    for bring in (stage, publish):
        with pytest.raises(PublishError, match="file is neither given nor staged") as refused:
            bring(place, [(row, None)])
        assert "--stage" in refused.value.hint
    assert place.log == []
    stage(place, additions([wheel]))
    assert (place.log, place.published) == ([wheel.name, f"{wheel.name}.metadata"], ())
    rows = publish(place, [(row, None)])
    assert place.log[2:] == ["commit"]
    assert place.published == rows


def test_each_wheel_is_a_step_and_so_is_the_commit(place: Memory, tmp_path: Path, wheel: Path) -> None:
    seen: list[str] = []

    @contextmanager
    def step(text: str) -> Iterator[ProgressCallback]:
        seen.append(f"begin {text}")
        yield lambda done, total, note="": None
        seen.append(f"end {text} after {len(place.log)}")

    publish(place, additions([wheel]), step)
    assert seen == [f"begin {wheel.name}", f"end {wheel.name} after 2", "begin publish", "end publish after 3"]


def test_yank_marks_one_published_wheel_with_the_reason(place: Memory, tmp_path: Path, wheel: Path) -> None:
    published = publish(place, additions([wheel, flash_attn_wheel(tmp_path, OTHER_CELL)]))
    for name, reason, error, hint in (
        (wheel.name, " \n", "no reason to yank", "--reason"),
        (f"{wheel.name}.metadata", "broken", "cannot yank a file that is not published", "manifest"),
    ):
        with pytest.raises(PublishError, match=error) as refused:
            yank(place, name, reason)
        assert hint in refused.value.hint
        assert place.published == published
    yank(place, wheel.name, "  wrong kernels\n for gfx942 ")
    assert {row.cell: row.yanked for row in place.published} == {CELL: "wrong kernels for gfx942", OTHER_CELL: None}


def test_each_change_keeps_what_another_run_published_meanwhile(place: Memory, tmp_path: Path, wheel: Path) -> None:
    (row,) = publish(place, additions([wheel]))
    yanked = row.model_copy(update={"yanked": "broken"})
    other = additions([flash_attn_wheel(tmp_path, OTHER_CELL)])
    place.concurrent = [(yanked,)]
    assert publish(place, other) == place.published == (yanked, other[0][0])
    assert place.log.count(other[0][0].filename) == 1, "a file is stored once"
    place.concurrent = [(row, other[0][0])]
    yank(place, wheel.name, "broken")
    assert {row.cell: row.yanked for row in place.published} == {CELL: "broken", OTHER_CELL: None}
    place.concurrent = [(yanked,)]
    add_evidence(place, [amd_validation(row)])
    (changed,) = list(place.published)
    assert (changed.yanked, verified_archs(changed)) == ("broken", ("gfx942",))


def test_after_five_commits_another_run_wins_with_an_error(place: Memory, wheel: Path) -> None:
    place.concurrent = [()] * 5
    with pytest.raises(PublishError, match="another run published in the meantime") as refused:
        publish(place, additions([wheel]))
    assert place.log.count("commit") == 5
    assert "same command again" in refused.value.hint
