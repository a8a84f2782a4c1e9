"""Whether a run may continue with the compiled kernels of an earlier one."""

from __future__ import annotations

from wheelfactory.core.errors import InputError
from wheelfactory.release.bundle import BUILD_WORKFLOW
from wheelfactory.release.github.workflow_runs import WorkflowRun

_EVENTS = ("push", "workflow_dispatch")
_HINT = "dispatch build.yml without `previous-run`: it compiles the kernels itself"


def require_own_run(run: WorkflowRun, repository: str) -> None:
    """Raise `InputError` unless a run is one of `BUILD_WORKFLOW`, on a commit of `repository` (``OWNER/REPO``).

    A pull request can change the workflow file and everything that the run compiles, so its runs do not count, and
    neither do those of a fork. The repository is compared in any case, as GitHub does.
    """
    head = run.head_repository.full_name if run.head_repository else "a deleted repository"
    path = run.path.partition("@")[0].removeprefix(f"{head}/")
    for what, found, expected, is_own in (
        ("repository", head, repository, head.lower() == repository.lower()),
        ("workflow file", path, BUILD_WORKFLOW, path == BUILD_WORKFLOW),
        ("event", run.event, " or ".join(_EVENTS), run.event in _EVENTS),
    ):
        if not is_own:
            which = f"run {run.id}: its {what} is {found}, not {expected}"
            raise InputError("cannot use the kernels of this run", which, _HINT)
