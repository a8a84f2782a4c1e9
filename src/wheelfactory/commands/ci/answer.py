"""`wheelfactory ci answer`: turn a wheel request, an issue made from GitHub's form, into the URL of a search page.

The body is untrusted: only the form's fields are read, and their values are percent-encoded.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping
from urllib.parse import quote, urlencode

from wheelfactory.commands.options import add_shared, print_results
from wheelfactory.commands.targets import add_readonly_target, find_site_url
from wheelfactory.core.errors import DONE, InputError
from wheelfactory.matrix.rules import AXES, GPU


def add(parser: argparse.ArgumentParser) -> None:
    """Add the command's options."""
    add_readonly_target(parser)
    add_shared(parser, "--site URL")


def execute(options: argparse.Namespace) -> int:
    """Print the URL of the search page, filled in from the text of a wheel request on stdin."""
    site = find_site_url(options.target, options.site)
    if site is None:
        raise InputError("cannot determine the URL of the search page", options.target, "pass it with --site URL")
    # anyone can write a request, so the size is limited and bytes that are not UTF-8 are replaced
    print_results(search_link(site, sys.stdin.buffer.read(4 * MAX_BODY).decode("utf-8", "replace")))
    return DONE


# maximum number of characters read from a body. GitHub's limit for an issue is 65,536
MAX_BODY = 300_000
# limit for one value
_MAX_VALUE = 200

FIELDS = (*AXES, GPU)
"""The field ids of .github/ISSUE_TEMPLATE/wheel-request.yml. The lower-case labels and the search page's query
parameters have the same names."""

# values that mean "no choice": what GitHub writes for an empty field, what it wrote for an empty dropdown in the past,
# and the dropdown's own option for any backend
_NO_CHOICE = ("_no response_", "none", "either")


def search_link(site: str, body: str) -> str:
    """The search page below `site` with the requested fields selected, as a Markdown autolink."""
    query = urlencode(read_request(body), quote_via=quote, safe="", errors="replace")
    page = "index.html" if site.startswith("file:") else ""  # a browser would list a local folder
    return f"<{site.rstrip('/')}/{page}{f'?{query}' if query else ''}>"


def read_request(body: str) -> Mapping[str, str]:
    """Return the filled-in fields by id; if one is repeated, the first wins.

    Further lines of a value are ignored.
    """
    # GitHub writes ``### Label``, an empty line, and the value on one line
    found: dict[str, str] = {}
    field = ""
    for line in body[:MAX_BODY].splitlines():
        text = line.strip()
        if text.startswith("### "):
            label = text[4:].strip().lower()
            field = label if label in FIELDS and label not in found else ""
        elif field and text:
            found[field] = text[:_MAX_VALUE]
            field = ""
    return {field: text for field, text in found.items() if text.lower() not in _NO_CHOICE}
