"""The section "By message" of docs/how-to/mend-an-install.md, from the table of symptoms."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator

from wheelfactory.explain.causes import DEFAULT_FACTS
from wheelfactory.explain.symptoms import Symptom, symptom_table

TITLES = {"pip": "pip and uv", "import": "An import", "run time": "A GPU at run time", "container": "A container"}


def symptom_lines() -> Iterator[str]:
    """Yield the lines: a list for each kind of text, each cause once."""
    for kind, title in TITLES.items():
        yield from (f"### {title}", "")
        first = {known.name: known for known in reversed(symptom_table().symptoms) if known.kind == kind}
        for known in reversed(first.values()):
            yield from textwrap.wrap(_item(known), 126, subsequent_indent="  ", break_on_hyphens=False)
        yield ""


def _item(known: Symptom) -> str:
    """A list item; … stands for what only a text can name."""
    text = re.sub(
        r"\{([\w-]+)\}", lambda match: DEFAULT_FACTS.get(match[1], "…"), f"{known.cause}. Next: {known.remedy}."
    )
    return f"- **{known.name}**: {re.sub('…+', '…', text)}"
