"""The faults of one request: the table in the documentation, and what the server does for each."""

from __future__ import annotations

from dataclasses import dataclass

LAG_S = 5.0


@dataclass(frozen=True)
class Fault:
    """One fault; `name` is its name in the documentation."""

    name: str
    done: bool = False
    """Whether GitHub carries out the request before it fails."""
    uploads_only: bool = False
    changes_only: bool = False
    """Whether it applies only to requests that change something."""
    kills: bool = False
    """Whether SIGKILL ends the publishing process."""
    lags: bool = False
    """Whether lists show this change and later ones only `LAG_S` seconds later."""


CUT_BEFORE = Fault("connection cut before GitHub did anything")
CUT_DURING = Fault("connection cut in the middle of an upload", uploads_only=True)
CUT_AFTER = Fault("connection cut after GitHub did it", done=True)
CUT_ANSWER = Fault("answer cut in the middle", done=True)
ERROR_BEFORE = Fault("500, nothing done")
ERROR_AFTER = Fault("500, but it was done", done=True, changes_only=True)
STARTER = Fault("502 that leaves an empty asset (`starter`)", uploads_only=True)
SECONDARY = Fault("403 secondary rate limit with Retry-After")
PRIMARY = Fault("429 with nothing left until x-ratelimit-reset")
DAMAGED = Fault("other bytes stored than were sent (wrong digest)", uploads_only=True)
DUPLICATE = Fault("422, an asset of that name is there already", uploads_only=True)
LAG = Fault("lists that show a change only seconds later", done=True, changes_only=True, lags=True)
CUT_AND_LAG = Fault(
    "connection cut after GitHub did it, and lists show it only seconds later", done=True, changes_only=True, lags=True
)
KILL_BEFORE = Fault("`kill -9` of the publishing process before GitHub did it", kills=True)
KILL_AFTER = Fault("`kill -9` of the publishing process after GitHub did it", done=True, kills=True)

FAULTS = (
    CUT_BEFORE,
    CUT_DURING,
    CUT_AFTER,
    CUT_ANSWER,
    ERROR_BEFORE,
    ERROR_AFTER,
    STARTER,
    SECONDARY,
    PRIMARY,
    DAMAGED,
    DUPLICATE,
    LAG,
    CUT_AND_LAG,
    KILL_BEFORE,
    KILL_AFTER,
)
"""Every fault. Tests inject each at every request that it applies to."""

SITUATIONS = {
    "connection refused at the first request": "client.py::test_a_refused_first_connection_is_reported_in_seconds",
    "host name not resolved at the first request": "client.py::test_an_unknown_host_is_reported_in_seconds",
    "default branch moved on during the run": "commit.py::test_a_new_tag_is_at_the_commit_of_the_run",
    "commit with other workflow files than the default branch (403, 404)": (
        "commit.py::test_a_commit_that_the_token_must_not_tag_is_left_out_with_a_warning"
    ),
    "another run publishes at the same time, such as a yank": (
        "concurrent.py::test_two_publishes_at_once_end_with_both_changes"
    ),
    "the token expires (401) and another run yanks": "concurrent.py::test_a_token_that_expires_while_another_run_yanks",
    "a batch is staged, but its attestation fails": (
        "command.py::test_what_is_staged_and_attested_is_published_by_later_jobs_without_its_files"
    ),
    "the tag was moved to another commit since the build": (
        "commit.py::test_a_tag_that_moved_since_the_build_is_refused_before_anything_is_published"
    ),
    "a published release or wheel is deleted on GitHub": (
        "publisher.py::test_a_cell_whose_release_was_deleted_or_wheel_yanked_gets_a_replacement"
    ),
    "a wheel is yanked": "publisher.py::test_a_cell_whose_release_was_deleted_or_wheel_yanked_gets_a_replacement",
    "a run is repeated after a batch reached its time limit": (
        "publisher.py::test_a_published_tag_goes_on_in_a_part_that_starts_no_build"
    ),
    "a kernel shard is cancelled": (
        "tests/pipeline/test_pipeline_collect.py"
        "::test_a_cancelled_shard_leaves_its_cells_to_the_next_run_and_this_one_red"
    ),
    "two tags build the same cell": "command.py::test_a_cell_published_by_another_run_is_skipped",
    "the weekly check hangs until its limit": (
        "tests/workflows/test_workflows_expressions.py"
        "::test_every_result_of_the_weekly_check_but_success_and_skipped_is_reported"
    ),
    "mistyped TARGET: a directory that does not exist": (
        "command.py::test_a_mistyped_directory_is_an_error_before_any_download"
    ),
}
"""Faults of the documentation's table with a test of their own. ``client.py`` is ``test_release_github_client.py``, and
``tests/...`` the path of any other."""
