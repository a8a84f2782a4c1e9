"""Publishing: verified wheels in; a release out that is either what it was or complete, never in between."""

from __future__ import annotations

from wheelfactory.publish.directory import DirectoryPublisher
from wheelfactory.publish.transaction import Asset, Publisher, publish, stage, yank

__all__ = ["Asset", "DirectoryPublisher", "Publisher", "publish", "stage", "yank"]
