"""Report a failed check of the published site in the open issue with the label ``drift``, or in a new one.

    GH_TOKEN=... GH_REPO=OWNER/REPO .venv/bin/python scripts/report_drift.py REPORT

REPORT is the file of `wheelfactory ci check --report`; a check that failed early left none. Needs GitHub's gh.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

from wheelfactory.core.errors import DONE, FAILED, FactoryError, InputError
from wheelfactory.core.files import read_file
from wheelfactory.core.process import capture

LABEL = "drift"
TITLE = "The published wheels failed their check"

MAX_REPORT = 50_000
"""Characters of a report with its indentation. GitHub's limit for the text of an issue is 65,536 characters."""

BODY = """\
The check of the published site failed in {run}. Its report:

{report}

Repair, yank or publish again what it names ([how to]({home}/blob/HEAD/{guide})), then run the
workflow *check*. While this issue is open, further failures are added as comments. Close it when a check succeeds.
"""
GUIDE = "docs/how-to/publish-on-github.md"
NO_REPORT = "none: the check ended before it could write one. The log of the job has the error."
CUT = "... The artifact log-check of the run has the rest."

_HINT = "check the connection to GitHub, and that the token can write issues"


def read_report(path: Path) -> str:
    """Return the report as an indented block, in which GitHub interprets nothing."""
    # the job that wrote it ran the code of wheels, so its text can be anything
    if not path.is_file():
        return f"    {NO_REPORT}"
    unreadable = InputError("cannot read the report", str(path), "name the file of `wheelfactory ci check --report`")
    text = read_file(path, unreadable, MAX_REPORT).decode("ascii", "replace")
    block = "\n".join(f"    {re.sub('[^ -~]', '?', line)}" for line in text.split("\n")).rstrip()
    return block if len(block) < MAX_REPORT else f"{block[:MAX_REPORT]}\n    {CUT}"


def issue_body(report: Path, environ: Mapping[str, str]) -> str:
    """Return the text of the issue or comment."""
    home = f"{environ.get('GITHUB_SERVER_URL') or 'https://github.com'}/{environ.get('GITHUB_REPOSITORY')}"
    run = environ.get("GITHUB_RUN_ID")
    where = f"{home}/actions/runs/{run}" if run else "a run outside of GitHub"
    return BODY.format(run=where, report=read_report(report), home=home, guide=GUIDE)


def find_issue() -> str:
    """Find the number of the oldest open issue with the label, or "" if there is none. Raises `FactoryError`."""
    listed = _gh("issue", "list", f"--label={LABEL}", "--state=open", "--limit=100", "--json=number")
    try:
        return str(min((int(found["number"]) for found in json.loads(listed)), default=""))
    except (ValueError, TypeError, KeyError):
        raise FactoryError("unexpected output of gh", listed[:200], "install a newer gh") from None


def report_drift(body: str) -> str:
    """Add a comment to the issue, or open it; return its URL. Raises `FactoryError`."""
    with tempfile.TemporaryDirectory() as scratch:
        path = Path(scratch, "body.md")
        path.write_text(body, encoding="utf-8")
        number = find_issue()
        if number:
            return _gh("issue", "comment", number, f"--body-file={path}").strip()
        # an issue cannot have a label that does not exist
        _gh("label", "create", LABEL, "--force", "--color=B60205", "--description=The published wheels failed a check")
        return _gh("issue", "create", f"--title={TITLE}", f"--label={LABEL}", f"--body-file={path}").strip()


def _gh(*arguments: str) -> str:
    return capture(["gh", *arguments], failure=FactoryError, hint=_HINT)


def main() -> int:
    parser = argparse.ArgumentParser(description="Report a failed check of the published site in one GitHub issue.")
    parser.add_argument("report", type=Path, metavar="REPORT", help="file of `wheelfactory ci check --report`")
    try:
        print(report_drift(issue_body(parser.parse_args().report, os.environ)))
    except FactoryError as error:
        print(f"error: {error}\nhint: {error.hint}", file=sys.stderr)
        return FAILED
    return DONE


if __name__ == "__main__":
    raise SystemExit(main())
