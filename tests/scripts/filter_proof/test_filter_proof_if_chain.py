"""If-chains of dispatch functions: parsed with their order, and restricted to what constants leave."""

from __future__ import annotations

import pytest

from filter_proof.if_chain import Block, Tokens, UnknownCodeError, is_false, leaves, parse_block, restrict, tokenize

CONSTANTS: dict[Tokens, bool] = {("t", ".", "cap"): False, ("t", ".", "lse"): True}


def restricted(text: str) -> Block:
    return restrict(parse_block(tokenize(text)), CONSTANTS)


@pytest.mark.parametrize(
    ("text", "same"),
    [
        ("if (t.cap == true) a(); else b();", "b();"),
        ("if (x) a(); else if (t.cap) b(); else c();", "if (x) { a(); } else { c(); }"),
        ("if (t.cap) a();", ""),
        ("if (x) { if (t.cap) a(); }", ""),
        ("if (x) { if (t.cap) a(); } else b();", "if (x) {} else b();"),
        ("void f() { if (!t.lse) { a(); } b(); }", "void f() { b(); }"),
        ("if ((x) && ((t.lse == false))) a(); // text\n b();", "b();"),
    ],
)
def test_a_branch_that_constants_rule_out_is_dropped(text: str, same: str) -> None:
    assert restricted(text) == parse_block(tokenize(same)) or restricted(text) == restricted(same)


@pytest.mark.parametrize(
    "text",
    [
        "(t.cap == false)",
        "(t.lse)",
        "(t.cap || x)",
        "(t.cap && x || y)",
        "(s.cap)",
        "(t.cap != true)",
        "constexpr (t.cap)",
        "(t.cap + 1)",
    ],
)
def test_a_condition_that_may_hold_is_kept(text: str) -> None:
    assert not is_false(tokenize(text), CONSTANTS)
    assert restricted(f"if {text} a();") != ()


def test_order_and_other_code_count() -> None:
    assert restricted("if (x) a(); else if (y) b();") != restricted("if (y) b(); else if (x) a();")
    assert restricted("int r = 1; if (x) a();") != restricted("int r = 2; if (x) a();")
    assert restricted('log("// a");') != restricted('log("// b");')


def test_an_empty_branch_in_front_of_another_is_kept() -> None:
    """Without it, the call would take the branch after it."""
    assert restricted("if (x) { if (t.cap) a(); } else if (y) b();") != restricted("if (y) b();")


def test_leaves_are_the_innermost_branches_in_order() -> None:
    found = list(leaves(parse_block(tokenize("f() { if (x) { if (y) a(); else b(); } else if (z) c(); }"))))
    assert [" ".join(leaf.code) for leaf in found] == ["a ( ) ;", "b ( ) ;", "c ( ) ;"]
    assert [len(leaf.conditions) for leaf in found] == [2, 1, 1]


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("while (x) { a(); }", "while in a dispatch function"),
        ("#ifdef X\na();\n#endif", "# in a dispatch function"),
        ("if x", "if without a condition"),
        ("if (x) { a();", "{ is never closed"),
        ("if (x)", "ends after a condition"),
        ("if (x) a()", "a statement never ends"),
    ],
)
def test_other_code_is_refused(text: str, why: str) -> None:
    with pytest.raises(UnknownCodeError, match=why):
        parse_block(tokenize(text))
