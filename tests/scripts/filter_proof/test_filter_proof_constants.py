"""Constants: booleans that every binding passes, and never more than these."""

from __future__ import annotations

import pytest

from dispatch_release import BINDING, HEADER
from filter_proof.constants import find_constants

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
