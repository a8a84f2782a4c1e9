"""The body of a wheel request, as GitHub makes it of the form -> the address of the search page that answers it.

Any text may come in. Only the form's fields are read, and their values leave this module percent-encoded.
"""

from __future__ import annotations

from collections.abc import Mapping
from urllib.parse import quote, urlencode

from wheelfactory.matrix.rules import AXES, GPU

MAX_BODY = 300_000
"""Characters of a body that are read; GitHub keeps 65,536 of an issue."""
_MAX_VALUE = 200
"""Characters of a value that are kept."""

FIELDS = (*AXES, GPU)
"""The ids of the fields of .github/ISSUE_TEMPLATE/wheel-request.yml, in lower case their labels too: the search page's
query has the same names."""

_NO_CHOICE = ("_no response_", "none", "either")
"""What GitHub writes for a field left empty, the second for a dropdown in the form's first years; and the dropdown's
own word for any backend."""


def search_url(site: str, body: str) -> str:
    """The search page below the address `site`, with the fields of a request chosen, as a Markdown autolink."""
    query = urlencode(read_request(body), quote_via=quote, safe="", errors="replace")
    page = "index.html" if site.startswith("file:") else ""  # a browser lists a folder of this machine
    return f"<{site.rstrip('/')}/{page}{f'?{query}' if query else ''}>"


def read_request(body: str) -> Mapping[str, str]:
    """The value of each field that was filled in, by id; of a field that is there twice, the first.

    GitHub writes ``### Label``, an empty line and the value. A value is one line there, so what follows is not read.
    """
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
