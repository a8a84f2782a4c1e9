"""The support tables: each rule of the matrix, so that the page and the doctor give its answer."""

from __future__ import annotations

from small_matrix import PREVIEW, small_matrix
from wheelfactory.core.support import Answer
from wheelfactory.site.support_tables import support_tables

TABLES = support_tables(small_matrix(PREVIEW))
# the exclusion of the small matrix leaves Python 3.12 out
PLACE = {"rocm": "6.4", "torch": "2.9.1", "python": "3.11", "backend": "ck"}


def test_where_only_a_preview_has_code_the_answer_is_may_work() -> None:
    found = TABLES.find_support({**PLACE, "gpu": "gfx1100"})
    assert found.answer is Answer.MAY_WORK
    assert any("2.8.4 preview (commit 4a948e9) is no release of upstream" in reason for reason in found.reasons)


def test_a_preview_does_not_lessen_what_a_release_promises() -> None:
    assert TABLES.find_support({**PLACE, "gpu": "gfx942"}).answer is Answer.WORKS
