"""Where sources and wheels of matrix.yaml come from, each pinned: PyPI, or git."""

from __future__ import annotations

from pydantic import ConfigDict, model_validator

from wheelfactory.core.models import FrozenModel
from wheelfactory.matrix.forms import (
    Citation,
    Commit,
    GitTagName,
    PureWheelName,
    Repository,
    SdistName,
    Sha256,
    SourcePath,
    VersionText,
    value_error,
)


class Fact(FrozenModel):
    """A mapping of matrix.yaml: immutable, without unknown keys or type conversions."""

    model_config = ConfigDict(strict=True, alias_generator=lambda name: name.replace("_", "-"))


class Sdist(Fact):
    """A source distribution on PyPI, pinned by the sha256 of the file."""

    file: SdistName
    sha256: Sha256


class GitTag(Fact):
    """A git tag or commit with its submodules; with both, the tag must point to the commit."""

    repository: Repository
    tag: GitTagName | None = None
    commit: Commit | None = None
    submodules: dict[SourcePath, Commit] | None = None
    """The submodules that a build needs, with their commits; None for all of them, at the commits of the tag."""

    @model_validator(mode="after")
    def _check_tag_or_commit(self) -> GitTag:
        if self.tag is None and self.commit is None:
            raise value_error("has neither a tag nor a commit", "add a tag, a commit, or both")
        return self


class Dependency(Fact):
    """A pure wheel that flash-attn needs besides torch: a file on PyPI, or built from a commit."""

    version: VersionText
    wheel: PureWheelName
    sha256: Sha256 | None = None
    """Of the file on PyPI."""
    git: GitTag | None = None
    """What the factory builds it from."""
    source: Citation

    @model_validator(mode="after")
    def _check_one_origin(self) -> Dependency:
        if (self.sha256 is None) == (self.git is None):
            raise value_error("must have one origin", "write either the sha256 of a file on PyPI or git")
        if self.git and self.git.commit is None:
            raise value_error("has a tag that can move", "add the commit to git")
        return self
