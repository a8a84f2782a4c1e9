"""The fake actions, mainly artifacts, which carry files between jobs."""

from __future__ import annotations

from pathlib import Path

import pytest

from workflows.artifacts import ActionError, Store
from workflows.conftest import RunText


@pytest.fixture
def store(tmp_path: Path) -> Store:
    (tmp_path / "kept").mkdir()
    return Store(tmp_path / "kept", {})


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    folder = tmp_path / "workspace"
    for name in ("dist/a.whl", "dist/sub/b.whl", "dist/.hidden/c", "one.txt"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(name)
    (folder / "dist/a.whl").chmod(0o755)
    return folder


def names(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())


def test_an_upload_stores_the_visible_files_of_a_folder_without_modes_once_under_a_name(
    store: Store, workspace: Path
) -> None:
    store.upload({"name": "n", "path": "dist"}, workspace)
    assert names(store.folder / "n") == ["a.whl", "sub/b.whl"]
    assert not (store.folder / "n/a.whl").stat().st_mode & 0o100
    with pytest.raises(ActionError, match="Conflict"):
        store.upload({"name": "n", "path": "dist/sub"}, workspace)
    store.upload({"name": "n", "path": "dist/sub", "overwrite": "true"}, workspace)
    assert names(store.folder / "n") == ["b.whl"]


def kept(store: Store, *wanted: str) -> None:
    for name in wanted:
        (store.folder / name).mkdir()
        (store.folder / name / f"{name}.txt").write_text(name)


def test_artifacts_get_folders_unless_named_merged_or_the_only_match(store: Store, tmp_path: Path) -> None:
    """Version 4 gave a single match its own folder too."""
    kept(store, "rows-a", "rows-b", "other")
    for number, (inputs, found) in enumerate((
        ({"name": "other"}, ["other.txt"]),
        ({"pattern": "rows-*", "path": "rows"}, ["rows/rows-a/rows-a.txt", "rows/rows-b/rows-b.txt"]),
        ({"pattern": "rows-*", "path": "m", "merge-multiple": "true"}, ["m/rows-a.txt", "m/rows-b.txt"]),
        ({"pattern": "rows-a*", "path": "rows"}, ["rows/rows-a.txt"]),
    )):  # fmt: skip
        store.download(inputs, tmp_path / str(number))
        assert names(tmp_path / str(number)) == found
    with pytest.raises(ActionError, match="not found for name: missing"):
        store.download({"name": "missing"}, tmp_path / "w")


CONTINUE = """
  one:
    runs-on: u
    permissions: PERMISSIONS
    steps:
      - if: ${{ vars.RUN == '' }}
        run: mkdir half; echo half > half/text
      - uses: actions/download-artifact@0000000000000000000000000000000000000000
        if: ${{ vars.RUN != '' }}
        with: {name: part, path: half, run-id: '${{ vars.RUN }}', github-token: '${{ github.token }}'}
      - run: cat half/text
      - uses: actions/upload-artifact@0000000000000000000000000000000000000000
        with: {name: part, path: half}
"""


def test_artifacts_of_an_earlier_run_need_a_token_with_actions_read(run_text: RunText) -> None:
    text = CONTINUE.replace("PERMISSIONS", "{actions: read}")
    first = run_text(text)
    assert first.artifact_names() == ["part"]
    second = run_text(text, settings={"variables": {"RUN": str(first.id)}}, previous=first)
    assert second.id == first.id + 1
    assert second.job("one").output == "half\n"
    assert run_text(text, settings={"variables": {"RUN": "7"}}, previous=first).result == "failure"
    refused = CONTINUE.replace("PERMISSIONS", "{contents: read}")
    assert "needs actions: read" in run_text(refused, settings={"variables": {"RUN": "1001"}}, previous=first).output()


USE = """
  one:
    runs-on: u
    permissions: {PERMISSIONS}
    steps:
      - run: mkdir site; echo hello > site/index.html; echo "0  a.whl" > sums; touch empty
      - uses: actions/upload-pages-artifact@0000000000000000000000000000000000000000
        with: {path: site}
      - id: used
        uses: ACTION@0000000000000000000000000000000000000000
        with: {WITH}
"""


def test_fake_actions_check_inputs_and_permissions(run_text: RunText) -> None:
    attest, pages = "actions/attest", "actions/deploy-pages"
    for action, given, permissions, message in (
        (attest, "subject-checksums: sums", "id-token: write, attestations: write", ""),
        (attest, "subject-checksums: sums", "id-token: write", "attestations: write"),
        (attest, "subject-checksums: empty", "id-token: write, attestations: write", "no subject in empty"),
        (pages, "", "pages: write", "needs id_token: write"),
    ):
        text = USE.replace("ACTION", action).replace("WITH", given).replace("PERMISSIONS", permissions)
        step = run_text(text).job("one").steps[-1]
        assert step.outcome == ("failure" if message else "success")
        assert message in step.output
