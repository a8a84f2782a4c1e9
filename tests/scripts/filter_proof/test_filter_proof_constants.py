"""Constants that every binding passes, and the if-chains of dispatch functions that they restrict."""

from __future__ import annotations

import pytest

from dispatch_release import BINDING, HEADER
from filter_proof.constants import find_constants
from filter_proof.if_chain import Block, Tokens, UnknownCodeError, is_false, leaves, parse_block, restrict, tokenize

STRUCTURE = "fmha_fwd_traits"


def found(*bindings: str, header: str = HEADER) -> dict[str, bool]:
    return find_constants(STRUCTURE, ["", header], bindings)


def test_literals_passed_values_and_defaults_are_constants() -> None:
    assert found(BINDING) == {"has_logits_soft_cap": False, "has_lse": True, "skip": False}


def test_the_constants_of_several_bindings_are_those_that_they_share() -> None:
    other = BINDING.replace("get_traits", "get_varlen_traits").replace("bool has_lse = true", "bool has_lse = false")
    assert found(BINDING, other) == {"has_logits_soft_cap": False, "skip": False}


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("bool has_lse = true;", "bool has_lse = q.grad();"),
        ("bool has_lse = true;", "bool has_lse{true};"),
        ("bool has_lse = true;", "bool has_lse = true || q.grad();"),
        ("bool has_lse = true;", "bool has_lse = true; has_lse &= q.grad();"),
        ("bool has_lse = true;", "bool has_lse = true; change(&has_lse);"),
        ("bool has_lse = true;", "bool has_lse = true; { auto has_lse = false; }"),
        ("bool has_lse = true;", "bool has_lse = true; auto &other = has_lse; other = false;"),
        ("bool has_lse = true;", "#if X\n bool has_lse = true;\n#else\n bool has_lse = false;\n#endif"),
        ("    return fmha_fwd_traits{", "    has_lse = !has_lse;\n    return fmha_fwd_traits{"),
        ("is_causal, has_lse);", "is_causal, !has_lse);"),
        ("is_causal, has_lse);", "is_causal);"),
        ("bool is_causal)\n{\n    bool", "bool has_lse)\n{\n    bool"),
        ("fmha_fwd(traits", "traits.has_lse = false; fmha_fwd(traits"),
        ("    return {};", "    auto f = get_traits; return {};"),
        ("std::vector<at::Tensor> mha_fwd", "void f() noexcept { get_traits(1, true, false); }\nint mha_fwd"),
        ("std::vector<at::Tensor> mha_fwd", "struct S { fmha_fwd_traits f = 1; };\nint mha_fwd"),
    ],
)
def test_a_value_that_may_change_is_no_constant(old: str, new: str) -> None:
    assert BINDING.count(old) == 1
    assert "has_lse" not in found(BINDING.replace(old, new))


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("    return {};", "    fmha_fwd_traits other; return {};"),
        ("    return {};", "    fmha_fwd_traits other(q); return {};"),
        ("has_lse};", "has_lse, false, false};"),
        ("false, // has", "\n#if X\nfalse,\n#else\ntrue,\n#endif\n// has"),
        ("at::Tensor &q", "at::Tensor &q, bool &changed"),
        ("std::vector<at::Tensor> mha_fwd", "void change(fmha_fwd_traits &traits) {}\nint mha_fwd"),
    ],
)
def test_a_structure_that_is_used_in_another_way_has_no_constants(old: str, new: str) -> None:
    assert BINDING.count(old) == 1
    assert found(BINDING.replace(old, new)) == {}


@pytest.mark.parametrize(
    "header",
    [
        "",
        HEADER * 2,
        HEADER.replace("int hdim;", "int hdim();"),
        HEADER.replace("int hdim;", "#if X\nint hdim;\n#endif\n"),
        HEADER.replace("int hdim;", "sizes hdim;"),
    ],
    ids=["absent", "twice", "method", "conditional", "aggregate"],
)
def test_a_structure_with_unknown_fields_has_no_constants(header: str) -> None:
    assert found(BINDING, header=header) == {}


def test_without_bindings_nothing_is_constant() -> None:
    assert found() == {}


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
