"""What a refresh found -> lines for the person who reviews the edit."""

from __future__ import annotations

from collections.abc import Iterator

from wheelfactory.matrix.refresh.image_tags import Findings


def lines_of(findings: Findings) -> Iterator[str]:
    """A line for each image that changed, then one for each that could be added."""
    for renewal in findings.renewals:
        if renewal.moved:
            yield f"replaced   {renewal.image.tag}"
            yield f"  by       {renewal.pin.tag}  {renewal.pin.digest}"
            yield "  check    its source and disk, which speak of the old one"
        elif renewal.changed:
            was = f" (was {renewal.image.digest})" if renewal.image.digest else ""
            yield f"pinned     {renewal.image.tag}  {renewal.pin.digest}{was}"
    for entry, image in findings.suggestions:
        yield f"suggested  for ROCm {entry}: {image}"


def summary_of(findings: Findings) -> str:
    """All of it in one line."""
    moved = sum(renewal.moved for renewal in findings.renewals)
    pinned = sum(renewal.changed for renewal in findings.renewals) - moved
    return (
        f"{len(findings.renewals)} images: {moved} replaced by a newer patch release, {pinned} pinned, "
        f"{len(findings.renewals) - moved - pinned} as they were"
    )
