"""Report what a scheduled workflow found in the open issue with its label, or in a new one.

    GH_TOKEN=... GH_REPO=OWNER/REPO .venv/bin/python scripts/report_issue.py drift|refresh REPORT

REPORT is the file of `wheelfactory ci check --report` or of `./factory refresh --report`; a job that failed early left
none. An empty report is not reported. Needs GitHub's gh.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from wheelfactory.core.errors import DONE, FAILED, FactoryError, InputError
from wheelfactory.core.files import read_file
from wheelfactory.core.process import capture


@dataclass(frozen=True)
class Kind:
    """An issue that a workflow keeps: one is open at most, and later reports are its comments."""

    title: str
    label_text: str
    body: str
    """With the fields run, report and home."""


KINDS = {
    "drift": Kind(
        "The published wheels failed their check",
        "The published wheels failed a check",
        """\
The check of the published site failed in {run}. Its report:

{report}

Repair, yank or publish again what it names ([how to]({home}/blob/HEAD/docs/how-to/publish-on-github.md)), then run the
workflow *check*. While this issue is open, further failures are added as comments. Close it when a check succeeds.
""",
    ),
    "refresh": Kind(
        "The weekly refresh needs a person",
        "The weekly refresh found what it cannot write itself",
        """\
The refresh of matrix.yaml could not do everything in {run}. Its report:

{report}

Write the entries, or exclude them with a reason ([how to]({home}/blob/HEAD/docs/how-to/refresh.md)). While this issue
is open, further reports are added as comments.
""",
    ),
}

MAX_REPORT = 50_000
"""Characters of a report with its indentation. GitHub's limit for the text of an issue is 65,536 characters."""

NO_REPORT = "none: the job ended before it could write one. Its log has the error."
CUT = "... The log of the run has the rest."

_HINT = "check the connection to GitHub, and that the token can write issues"


def read_report(path: Path) -> str:
    """Return the report as an indented block, in which GitHub interprets nothing."""
    # the job that wrote it ran the code of wheels, so its text can be anything
    if not path.is_file():
        return f"    {NO_REPORT}"
    unreadable = InputError("cannot read the report", str(path), "name the file that --report wrote")
    text = read_file(path, unreadable, MAX_REPORT).decode("ascii", "replace")
    block = "\n".join(f"    {re.sub('[^ -~]', '?', line)}" for line in text.split("\n")).rstrip()
    return block if len(block) < MAX_REPORT else f"{block[:MAX_REPORT]}\n    {CUT}"


def issue_body(kind: str, report: Path, environ: Mapping[str, str]) -> str:
    """Return the text of the issue or comment."""
    home = f"{environ.get('GITHUB_SERVER_URL') or 'https://github.com'}/{environ.get('GITHUB_REPOSITORY')}"
    run = environ.get("GITHUB_RUN_ID")
    where = f"{home}/actions/runs/{run}" if run else "a run outside of GitHub"
    return KINDS[kind].body.format(run=where, report=read_report(report), home=home)


def find_issue(label: str) -> str:
    """Find the number of the oldest open issue with the label, or "" if there is none. Raises `FactoryError`."""
    listed = _gh("issue", "list", f"--label={label}", "--state=open", "--limit=100", "--json=number")
    try:
        return str(min((int(found["number"]) for found in json.loads(listed)), default=""))
    except (ValueError, TypeError, KeyError):
        raise FactoryError("unexpected output of gh", listed[:200], "install a newer gh") from None


def report_issue(kind: str, body: str) -> str:
    """Add a comment to the issue, or open it; return its URL. Raises `FactoryError`."""
    with tempfile.TemporaryDirectory() as scratch:
        path = Path(scratch, "body.md")
        path.write_text(body, encoding="utf-8")
        number = find_issue(kind)
        if number:
            return _gh("issue", "comment", number, f"--body-file={path}").strip()
        # an issue cannot have a label that does not exist
        described = KINDS[kind]
        _gh("label", "create", kind, "--force", "--color=B60205", f"--description={described.label_text}")
        return _gh("issue", "create", f"--title={described.title}", f"--label={kind}", f"--body-file={path}").strip()


def _gh(*arguments: str) -> str:
    return capture(["gh", *arguments], failure=FactoryError, hint=_HINT)


def main() -> int:
    parser = argparse.ArgumentParser(description="Report what a scheduled workflow found in one GitHub issue.")
    parser.add_argument("kind", choices=KINDS, help="the label of the issue")
    parser.add_argument("report", type=Path, metavar="REPORT", help="file that --report wrote")
    options = parser.parse_args()
    try:
        if options.report.is_file() and not options.report.stat().st_size:
            print("nothing to report")
        else:
            print(report_issue(options.kind, issue_body(options.kind, options.report, os.environ)))
    except FactoryError as error:
        print(f"error: {error}\nhint: {error.hint}", file=sys.stderr)
        return FAILED
    return DONE


if __name__ == "__main__":
    raise SystemExit(main())
