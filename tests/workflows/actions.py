"""Fakes of the actions in our workflows: required permissions, errors, artifacts and outputs."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from fake_sigstore import FakeSigstore
from workflows.artifacts import ActionError, Store
from workflows.document import WorkflowError
from workflows.sandbox import copy_tree


@dataclass(frozen=True)
class ActionUse:
    """One step that uses an action."""

    inputs: Mapping[str, str]
    workspace: Path
    home: Path
    tree: Path
    permissions: Mapping[str, str]
    store: Store

    def require(self, **scopes: str) -> None:
        """Fail the step without these permissions."""
        for scope, level in scopes.items():
            if self.permissions.get(scope.replace("_", "-")) not in (level, "write"):
                raise ActionError(f"403 Resource not accessible by integration: needs {scope}: {level}")


@dataclass(frozen=True)
class Action:
    """A fake action and the inputs that it supports."""

    inputs: frozenset[str]
    act: Callable[[ActionUse], Mapping[str, str]]


def _checkout(use: ActionUse) -> dict[str, str]:
    copy_tree(use.tree, use.workspace, "src/")
    return {}


def _setup_python(use: ActionUse) -> dict[str, str]:
    if not use.inputs.get("python-version"):
        raise ActionError("python-version is missing")
    return {"python-version": use.inputs["python-version"]}


def _expand_home(use: ActionUse) -> str:
    """Return the input ``path`` as both actions for artifacts read it."""
    return re.sub(r"^~(?=/)", str(use.home), use.inputs.get("path", "."), flags=re.MULTILINE)


def _upload(use: ActionUse) -> dict[str, str]:
    use.store.upload({**use.inputs, "path": _expand_home(use)}, use.workspace)
    return {}


def _download(use: ActionUse) -> dict[str, str]:
    if use.inputs.get("run-id"):
        use.require(actions="read")
    return {"download-path": use.store.download({**use.inputs, "path": _expand_home(use)}, use.workspace)}


def _attest(use: ActionUse) -> dict[str, str]:
    use.require(id_token="write", attestations="write")  # noqa: S106 - the name of a permission
    sums = use.workspace / use.inputs["subject-checksums"]
    lines = sums.read_text().splitlines() if sums.is_file() else []
    if not lines:
        raise ActionError(f"no subject in {sums.name}")
    bundle = use.workspace / "attestation.json"
    bundle.write_bytes(FakeSigstore().sign({name: digest for digest, name in (line.split("  ") for line in lines)}))
    return {"bundle-path": str(bundle)}


def _upload_pages(use: ActionUse) -> dict[str, str]:
    inputs = {"name": use.inputs.get("name", "github-pages"), "path": use.inputs.get("path", "_site/")}
    use.store.upload(inputs, use.workspace)
    return {}


def _deploy_pages(use: ActionUse) -> dict[str, str]:
    use.require(id_token="write", pages="write")  # noqa: S106 - the name of a permission
    name = use.inputs.get("artifact_name", "github-pages")
    if not (use.store.folder / name).is_dir():
        raise ActionError(f"no artifact {name}")
    return {"page_url": "https://someone.github.io/wheels/"}


_UPLOAD = "name path retention-days compression-level overwrite"

ACTIONS = {
    name: Action(frozenset(inputs.split()), act)
    for name, inputs, act in (
        ("actions/checkout", "persist-credentials", _checkout),
        ("actions/setup-python", "python-version", _setup_python),
        ("actions/upload-artifact", _UPLOAD, _upload),
        ("actions/download-artifact", "name pattern path merge-multiple run-id github-token", _download),
        ("actions/attest", "subject-checksums", _attest),
        ("actions/upload-pages-artifact", "name path", _upload_pages),
        ("actions/deploy-pages", "artifact_name", _deploy_pages),
    )
}


def use_action(name: str, use: ActionUse) -> Mapping[str, str]:
    """Run a fake action and return its outputs. Raises `ActionError` if it fails, `WorkflowError` if it is unknown."""
    if name not in ACTIONS:
        raise WorkflowError(f"no fake of the action {name}")
    unknown = sorted(set(use.inputs) - ACTIONS[name].inputs)
    if unknown:
        raise WorkflowError(f"the fake of {name} has no input {unknown[0]}")
    return ACTIONS[name].act(use)
