"""Fake directories of the driver's GPU list."""

from __future__ import annotations

from pathlib import Path


def make_nodes(folder: Path, *versions: int) -> Path:
    """Write the driver's list of nodes, one for each ``gfx_target_version``; return its directory."""
    for number, version in enumerate(versions):
        (folder / str(number)).mkdir(parents=True)
        properties = f"cpu_cores_count 0\nsimd_count 304\ngfx_target_version {version}\nvendor_id 4098\n"
        (folder / str(number) / "properties").write_text(properties)
    return folder
