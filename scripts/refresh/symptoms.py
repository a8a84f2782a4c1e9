"""The list in docs/how-to/messages.md, from the table of symptoms."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator

from wheelfactory.explain.causes import DEFAULT_FACTS
from wheelfactory.explain.symptoms import Symptom, symptom_table

TITLES = {"pip": "pip and uv", "run time": "A GPU at run time", "container": "A container"}


def symptom_lines() -> Iterator[str]:
    """Yield the lines: a list for each kind of text, each cause once; none that only sends to the doctor."""
    for kind, title in TITLES.items():
        yield from (f"## {title}", "")
        first = {known.name: known for known in reversed(symptom_table().symptoms) if known.kind == kind}
        for known in reversed([known for known in first.values() if not known.remedy.startswith("run the doctor")]):
            yield from textwrap.wrap(_item(known), 126, subsequent_indent="  ", break_on_hyphens=False)
        yield ""


def _item(known: Symptom) -> str:
    """A list item with the first step of the remedy; … stands for what only a text can name."""
    step = re.sub(r" \([^()]*\)", "", known.remedy.partition("; ")[0])
    text = re.sub(r"\{([\w-]+)\}", lambda match: DEFAULT_FACTS.get(match[1], "…"), step)
    return f"- **{known.name}**: {re.sub('…+', '…', text).replace('`wheelfactory ', '`./factory ')}"
