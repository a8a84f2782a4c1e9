"""The proof: a trimmed run serves every call of the bindings, or the first difference is named."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from dispatch_release import BINDING, FILTER, HEADER, TRIM, generate, write_dispatch_release
from filter_proof.proof import UnprovedError, find_differences, prove_filters
from preview_sources import VERSION, make_preview_release
from real_kernels import FMHA
from wheelfactory.build.environments import clean_environ
from wheelfactory.build.sources import fetch_source, unpack_source
from wheelfactory.core.errors import SourceError
from wheelfactory.core.files import MATRIX
from wheelfactory.core.process import capture
from wheelfactory.kernels.generator_commands import parse_generator_commands
from wheelfactory.matrix.load import load_matrix

API = "fmha_fwd_api"
CALLED = ("fmha_fwd_d64_fp16_nlogits_mask_lse", "fmha_fwd_d64_fp16_nlogits_nmask_lse")

Texts = Mapping[str, str]


@pytest.fixture(scope="module")
def full(tmp_path_factory: pytest.TempPathFactory) -> Texts:
    return generate(tmp_path_factory.mktemp("full"))


@pytest.fixture(scope="module")
def trimmed(tmp_path_factory: pytest.TempPathFactory) -> Texts:
    return generate(tmp_path_factory.mktemp("trimmed"), "--filter", FILTER)


def check(full: Texts, trimmed: Texts, binding: str = BINDING, header: str = HEADER) -> list[str]:
    return find_differences(full, trimmed, [binding], [header])


def test_a_run_with_all_kernels_that_can_be_called_is_proved(full: Texts, trimmed: Texts) -> None:
    assert len(full) == 9
    assert sorted(trimmed) == sorted([API, *CALLED])
    assert check(full, trimmed) == []


@pytest.mark.parametrize(
    ("binding", "header"),
    [
        (("false, // has_logits_soft_cap", "true, // has_logits_soft_cap"), ("", "")),
        (("    return {};", "    get_traits(1, true, false); return {};"), ("", "")),
        (
            ("is_causal,\n                           has_lse};", "has_lse,\n                           is_causal};"),
            ("", ""),
        ),
        (("", ""), ("    int hdim;\n", "    bool is_new;\n    int hdim;\n")),
    ],
    ids=["another constant", "a second caller", "another order", "a header with other fields"],
)
def test_a_binding_that_can_call_what_is_left_out_is_refused(
    full: Texts, trimmed: Texts, binding: tuple[str, str], header: tuple[str, str]
) -> None:
    """`filter_proof.constants` has the other ways in which a value is no constant."""
    assert binding[0] in BINDING and header[0] in HEADER
    (found,) = check(full, trimmed, BINDING.replace(*binding, 1), HEADER.replace(*header, 1))
    assert "branches that a call can take are missing" in found


def test_a_missing_or_changed_kernel_and_a_missing_branch_or_dispatch_file_are_refused(
    full: Texts, trimmed: Texts, tmp_path: Path
) -> None:
    less = {name: text for name, text in trimmed.items() if name != CALLED[0]}
    assert check(full, less) == [
        f"{API} names 1 kernels that are not generated: fmha_fwd_traits_<64,FmhaFwdFp16,false,ck_tile::Mask<true>,true>"
    ]
    less = {**generate(tmp_path, "--filter", "*_nlogits_nmask_lse"), CALLED[0]: full[CALLED[0]]}
    (found,) = check(full, less)
    assert f"{API}: 1 branches that a call can take are missing: (" in found
    assert "t . use_mask == true" in found
    changed = {**trimmed, CALLED[1]: trimmed[CALLED[1]] + "// more\n"}
    assert check(full, changed) == [f"{CALLED[1]} differs, and is no dispatch file"]
    assert check(full, {name: trimmed[name] for name in CALLED}) == [f"{API} is missing"]
    assert "no dispatch file is generated" in check({name: full[name] for name in CALLED}, {})


def test_branches_in_another_order_are_refused(full: Texts, trimmed: Texts) -> None:
    first, second = "(t.use_mask == true)", "(t.use_mask == false)"
    swapped = trimmed[API].replace(first, "FIRST").replace(second, first).replace("FIRST", second)
    for mask in ("true", "false"):
        swapped = swapped.replace(f"Mask<{mask}>", f"mask<{'false' if mask == 'true' else 'true'}>")
    (found,) = check(full, {**trimmed, API: swapped.replace("mask<", "Mask<")})
    assert "branches are in another order" in found


@pytest.mark.parametrize(
    ("old", "new", "found"),
    [
        ("float r = -1;", "float r = 0;", "code outside of its branches differs"),
        ("return fmha_fwd_<trait_>(s, a);", "return 0;", "branches that a call can take are missing"),
        ("(t.hdim <= 64)", "(t.hdim <= 32)", "branches that a call can take are missing"),
        ("    float r = -1;", "    t.has_lse = true;", "code outside of its branches differs"),
        ("    float r = -1;", "    for (;;) {}", "is not understood: for in a dispatch function"),
        ("    return r;\n}", "    return r;\n", "is not understood: { is never closed"),
        ("    float r = -1;", "#if X\n    float r = -1;\n#endif", "is not understood: # in a dispatch function"),
    ],
)
def test_any_other_change_of_the_dispatch_is_refused(
    full: Texts, trimmed: Texts, old: str, new: str, found: str
) -> None:
    assert old in trimmed[API]
    assert found in check(full, {**trimmed, API: trimmed[API].replace(old, new)})[0]


def test_a_dispatch_that_changes_a_constant_itself_is_refused(full: Texts, trimmed: Texts) -> None:
    changed = [{**texts, API: texts[API].replace("float r", "t.has_lse = false; float r")} for texts in (full, trimmed)]
    (found,) = check(changed[0], changed[1])
    assert "branches that a call can take are missing" in found


# families of GPUs, which newer generators name in each kernel and call


def for_family(texts: Texts, family: str, *, only: str = "") -> Texts:
    """The texts with all kernels for one family, or the one source `only`."""
    return {
        name: text.replace("<trait_>", f"<trait_, ck_tile::{family}>").replace(
            "trait_0>", f"trait_0, ck_tile::{family}>"
        )
        if only in ("", name)
        else text
        for name, text in texts.items()
    }


def test_kernels_of_a_family_are_proved_and_those_of_another_are_missing(full: Texts, trimmed: Texts) -> None:
    one = for_family(full, "gfx12_t")
    assert check(one, for_family(trimmed, "gfx12_t")) == []
    for family in ("gfx9_t", ""):
        other = for_family(trimmed, family) if family else trimmed
        mixed = {**other, API: for_family(trimmed, "gfx12_t")[API]}
        assert f"{API} names 2 kernels that are not generated" in check({**one, **mixed}, mixed)[0]
    assert check(one, {**for_family(trimmed, "gfx12_t"), CALLED[0]: ""})[-1].endswith(
        "ck_tile::Mask<true>,true> for gfx12_t"
    )


def test_a_kernel_without_a_family_is_none_of_a_dispatch_file_with_families(full: Texts) -> None:
    calls = for_family(full, "gfx12_t", only=API)
    assert check(calls, calls) == [
        f"{API} names 8 kernels that are not generated: "
        "fmha_fwd_traits_<64,FmhaFwdFp16,true,ck_tile::Mask<true>,true> for gfx12_t"
    ]


def test_a_padding_is_compared_by_its_value(full: Texts) -> None:
    """A dispatch file writes ``(8 > 0)`` where the kernel has ``true``."""
    written = {**full, API: full[API].replace("/*lse=*/true", "(8 > 0)").replace("/*lse=*/false", "(0 > 0)")}
    assert check(written, written) == []
    fewer = {name: text for name, text in written.items() if not name.endswith("_lse")}
    assert f"{API} names 4 kernels that are not generated" in check(written, fewer)[0]


# upstream's own generator


class Upstream:
    """The sources of a release, and its generator of the kernels of one direction."""

    def __init__(self, tree: Path, version: str, direction: str, archs: Sequence[str] = ()) -> None:
        self.tree = tree
        commands = parse_generator_commands((tree / "setup.py").read_text(), version, archs)
        (self._command,) = (command for command in commands if direction in command)

    def generate(self, *options: str) -> Texts:
        """The texts that it generates, by name."""
        output = Path(tempfile.mkdtemp(dir=self.tree))
        words = [output.name if word == "build" else word for word in self._command]
        capture([*words, *options], cwd=self.tree)
        return {path.stem: path.read_text() for path in output.iterdir()}

    def bindings(self) -> list[str]:
        return [path.read_text() for path in (self.tree / "csrc/flash_attn_ck").glob("*.?pp")]

    def headers(self) -> list[str]:
        return [path.read_text() for path in (self.tree / FMHA).glob("*.hpp")]


@pytest.fixture(scope="module")
def upstream(cache: Path, tmp_path_factory: pytest.TempPathFactory) -> Upstream:
    try:
        source = fetch_source("2.8.3", load_matrix(MATRIX).flash_attn["2.8.3"], cache / "sources", os.environ)
    except SourceError as error:
        pytest.skip(f"no sources of 2.8.3: {error}")
    return Upstream(unpack_source(source, tmp_path_factory.mktemp("upstream")), "2.8.3", "fwd_splitkv")


@pytest.mark.slow
def test_upstreams_split_kv_kernels_are_proved_and_each_mutant_is_refused(upstream: Upstream) -> None:
    full, trimmed = upstream.generate(), upstream.generate("--filter", "*@*_nlogits_*")
    bindings, headers = upstream.bindings(), upstream.headers()

    def differences(mutant: Texts) -> str:
        return "\n".join(find_differences(full, mutant, bindings, headers))

    assert (len(full), len(trimmed)) == (676, 484)
    assert differences(trimmed) == ""
    kernel = next(name for name in trimmed if "_nlogits_" in name)
    # no call reaches these, but the else of `if (t.has_lse)` names 40 of them
    combine = {name for name in trimmed if "_combine_" in name and "_nlse" in name}
    assert len(combine) == 51
    for dropped, count in (({kernel}, 1), (combine, 40)):
        less = {name: text for name, text in trimmed.items() if name not in dropped}
        assert f"names {count} kernels that are not generated" in differences(less)
    api = "fmha_fwd_splitkv_api"
    start = trimmed[api].index("if((t.is_group_mode")
    one, two = (trimmed[api][start:].split("            }\n            else ")[index] for index in (0, 1))
    swapped = trimmed[api].replace(one, "ONE", 1).replace(two, one, 1).replace("ONE", two, 1)
    assert "branches are in another order" in differences({**trimmed, api: swapped})
    missing = trimmed[api].replace(f"{one}            }}\n            else ", "", 1)
    assert "3 branches that a call can take are missing" in differences({**trimmed, api: missing})


@pytest.mark.slow
def test_what_is_left_to_trim_of_a_preview_with_an_older_composable_kernel(cache: Path, tmp_path: Path) -> None:
    """Two families of GPUs: the bindings are of commit 4a948e9, and fill a field that this Composable Kernel lacks."""
    archs = ["gfx90a", "gfx942", "gfx950", "gfx1200", "gfx1201"]
    source = fetch_source(VERSION, make_preview_release(cache, archs), cache / "sources", os.environ)
    tree = unpack_source(source, tmp_path / "upstream")
    forward, split = (Upstream(tree, VERSION, direction, archs) for direction in ("fwd", "fwd_splitkv"))
    full, fewer = forward.generate(), forward.generate("--filter", "*_nlogits_*_lse_*")
    assert len(full) - len(fewer) == 1328
    bindings, headers = forward.bindings(), forward.headers()
    assert find_differences(full, fewer, bindings, headers) == []
    full, fewer = split.generate(), split.generate("--filter", "*@*_nlogits_*")
    assert len(full) - len(fewer) == 384
    (refused,) = find_differences(full, fewer, bindings, headers)
    assert refused.startswith("fmha_fwd_splitkv_api: 1152 branches that a call can take are missing")
    last = "    bool do_fp8_static_quant;\n    // TODO: padding check is inside this api\n};\nfloat fmha_fwd_splitkv("
    declared = [text.replace(last, last.replace("    //", "    bool has_sink;\n    //")) for text in headers]
    assert declared != headers
    assert find_differences(full, fewer, bindings, declared) == []


@pytest.mark.slow
@pytest.mark.parametrize("version", ["2.8.3.post2", "2.7.4.post1"])
def test_the_proof_that_the_matrix_states_is_of_upstreams_sources(version: str, cache: Path) -> None:
    release = load_matrix(MATRIX).flash_attn[version]
    assert release.trim
    assert prove_filters(version, release, cache, clean_environ(os.environ)) == release.trim.proof


@pytest.mark.parametrize(
    ("binding", "pattern", "why"),
    [("", FILTER, "that a call can take are missing"), (BINDING, "*", "the filters leave nothing out")],
)
def test_a_release_whose_calls_are_not_served_is_refused(tmp_path: Path, binding: str, pattern: str, why: str) -> None:
    matrix = write_dispatch_release(tmp_path, tmp_path, binding, TRIM.replace(FILTER, pattern))
    with pytest.raises(UnprovedError, match=why):
        prove_filters("2.8.3", load_matrix(matrix).flash_attn["2.8.3"], tmp_path, os.environ)
