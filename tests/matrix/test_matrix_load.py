"""An invalid matrix.yaml is one `InputError` with the position and the correction of each mistake."""

from __future__ import annotations

import codecs
from collections.abc import Iterator
from functools import reduce
from operator import getitem
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from small_matrix import PREVIEW, SMALL, Edit, edited, small_matrix
from wheelfactory.core.errors import BAD_INPUT, InputError
from wheelfactory.matrix.document import MAX_VALUES, Document, UnreadableError
from wheelfactory.matrix.load import MAX_BYTES, MAX_COMBINATIONS, load_matrix
from wheelfactory.matrix.origins import Fact

HERE = "§"
"""Stands in the texts below where the error must point to."""

TAG_CK = (
    "    ck:\n      archs: [gfx90a, gfx942]\n      wheel-size: 20 MB to 1000 MB\n      source: setup.py of the tag\n"
)
REPOSITORY = "      repository: https://github.com/Dao-AILab/flash-attention\n"
COMMIT = "      commit: 418d677192b483dfc1decfdf9aadca40b402485d\n"
ORIGIN = f"{REPOSITORY}      tag: v2.6.3\n{COMMIT}"
EXCLUSION = SMALL[SMALL.index("  - backend: ck\n") :]
NO_CK = SMALL[: SMALL.index("    torch: '>=2.9'")]
AXES = "backend: ck\n    torch: '>=2.9'\n    python: '==3.12'\n    "
AN_SDIST = f"sdist: {{file: flash_attn-2.6.3.tar.gz, sha256: {'a' * 64}}}\n    "
SIZE, WINDOW = "flash-attn.2.8.3.ck.wheel-size", "flash-attn.2.8.3.triton.window"

ODD_VALUES = [
    "7.10", "1e999", ".nan", "0x7f", "12:30:45", "2026-11-20", "true", "~", "''", "[]", "{}", "[[]]", "{a: b}", "[1]",
    "<<: {a: b}", "&a [*a]", "*a", "!!binary YQ==", "!x y", "? [a]", "|", ">-", "'", '"\\ud83d"', "- a", "a: b: c",
    "\t", "#", "%YAML 9.9", "---", "...", "é", "💥", "../../etc", "{{ x }}", "2.6.3+a", "*", "===a", ">=1,<0",
]  # fmt: skip


def _leaves(value: Any, place: tuple[Any, ...] = ()) -> Iterator[tuple[tuple[Any, ...], Any]]:
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, item in inner:
        yield from _leaves(item, (*place, key))
    if not isinstance(value, (dict, list)):
        yield place, value


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "matrix.yaml"


def refuse(path: Path, content: str | bytes) -> InputError:
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(InputError) as refused:
        load_matrix(path)
    assert refused.value.exit_code == BAD_INPUT
    return refused.value


def split(marked: str) -> tuple[str, str]:
    """The text without the mark, and the ``line:column`` at which the mark stood."""
    before, mark, after = marked.partition(HERE)
    assert mark, "nothing is marked"
    return before + after, f"{before.count(chr(10)) + 1}:{len(before) - before.rfind(chr(10))}"


def assert_refused(path: Path, marked: str, what: str, hint: str) -> None:
    text, place = split(marked)
    error = refuse(path, text)
    assert error.which == f"{path}:{place}: {what}"
    assert hint in error.hint


ROCM = SMALL[SMALL.index("  '6.2':") : SMALL.index("    archs", SMALL.index("  '6.2':"))]
TAG = "rocm6.4.1_ubuntu22.04_py3.10_pytorch_release_2.6.0"
FIRST = SMALL[SMALL.index("first\n") : SMALL.index("      - tag: rocm/pytorch:python")]
ARCHS = "[gfx942, gfx90a, gfx1100]\n"
TWO_ANSWERS = "gfx1100 stands in two of archs, may-work and fails"

REFUSED: dict[str, tuple[tuple[str, str, str, str], ...]] = {
    "an unquoted number, as it is written": (
        ("  '6.2':", "  §6.2:", "6.2 is a number, not a version", "write '6.2' in quotes"),
        ("'0.8.2'", "§0.80", "dependencies.einops.version: 0.80 is a number, not text", "write '0.80' in quotes"),
        ("['2.9.1']", "[§2.10]", "rocm.6.4.torch.0: 2.10 is a number, not text", "write '2.10' in quotes"),
    ),
    "an unknown key": (
        ("backend", "§pythons: x\nbackend", "unknown key 'pythons'", "known here: flash-attn, python, torch"),
        ("    triton:", "    §flash_attn: x\n    triton:", "unknown key 'flash_attn'", "known here: sdist, git"),
        ("tag: v", "§sha256: x\n      tag: v", "unknown key 'sha256'", "known here: repository, tag, commit"),
        ("backend: [ck", "§{{ backend }}: x\nbackend: [ck", "a key must be text, not a list or mapping", "in quotes"),
        ("glibc", "§musl: x\n        glibc", "unknown key 'musl'", "known here: tag, digest, distribution, glibc"),
    ),
    "a duplicate": (
        ("backend", "backend: [ck]\n§backend", "'backend' is given twice", "on line 1; keep one"),
        ("  '2.6.3':", "  §'2.8.3':", "'2.8.3' is given twice", "on line 6; keep one"),
        ("'3.11']", "'3.11', §'3.12']", "'3.12' is listed twice", "remove one"),
        ("gfx942, gfx950", "gfx942, §gfx90a", "'gfx90a' is listed twice", "remove one"),
        (
            ROCM,
            ROCM.replace("'6.2'", "§'6.4.0'").replace("rocm6.2", "rocm6.4.0"),
            "6.4.0 is the same version as 6.4",
            "",
        ),
        (EXCLUSION, EXCLUSION + EXCLUSION.replace("- ", "- §"), "this entry is listed twice", "remove one of them"),
        ("rocm/pytorch:python", "§rocm/pytorch:first", "rocm/pytorch:first is listed twice", "remove one"),
    ),
    "a version or backend that is on no axis": (
        (NO_CK, NO_CK.replace("ck, ", "").replace(": ck", ": §ck"), "no backend is ck", "known: triton"),
        ("['2.9.1']", "['2.9.1', §'2.7.1']", "torch 2.7.1 has no entry", "known: 2.9.1, 2.5.1; add one under torch:"),
        ("'>=2.9'", "§'>=2.10'", "no torch version is >=2.10", "known: 2.9.1, 2.5.1"),
        ("'==3.12'", "§'==3.1'", "no python version is ==3.1", "known: 3.12, 3.11"),
        ("torch: '>=2.9'", "rocm: §'<6'", "no rocm version is <6", "known: 6.4, 6.2"),
        ("torch: '>=2.9'", "flash-attn: §'==2.7.*'", "no flash-attn version is ==2.7.*", "known: 2.8.3, 2.6.3"),
    ),
    "an image that is not what its tag says": (
        (
            *("rocm/pytorch:first", f"§rocm/pytorch:{TAG.replace('6.4.1', '6.2.4')}"),
            *(f"{TAG.replace('6.4.1', '6.2.4')} is not of ROCm 6.4", "name an image of this ROCm"),
        ),
        *(
            (FIRST, FIRST.replace("first", TAG.replace(tagged, other)).replace(given, f"§{given}"), what, "correct one")
            for tagged, other, given, what in (
                (
                    "22.04",
                    "24.04",
                    "ubuntu22.04\n",
                    "ubuntu22.04 is not the distribution of the tag, which has ubuntu24.04",
                ),
                ("py3.10", "py3.12", "'3.10'", "py3.10 is not the python of the tag, which has py3.12"),
                ("2.6.0", "2.7.1", "'2.6.0'", "2.6.0 is not the torch of the tag, which has 2.7.1"),
            )
        ),
    ),
    "a missing key, at its entry": (
        ("backend: [ck, triton]\n\n", "§", "backend is missing", "add it to that entry"),
        ("torch: ['2.9.1']\n    index", "§index", "rocm.6.4.torch is missing", "add it to that entry"),
        ("tag: rocm/pytorch:first\n        ", "§", "rocm.6.4.images.0.tag is missing", "add it to that entry"),
    ),
    "a value of the wrong type": (
        ("[ck, triton]", "§ck", "backend must be a list", "write [one, two]"),
        (" ['3.12', '3.11']", "§", "python must be a list", "leave the key out"),
        ("['3.12', '3.11']", "§[]", "python must not be empty", "at least one"),
        ("[ck, triton]", "[ck, §cuda]", "backend.1 must be 'ck' or 'triton'", "one of these"),
        ("true", "§1", "torch.2.9.1.cxx11-abi must be true or false", "without quotes"),
        ("v2.6.3", "§yes", "flash-attn.2.6.3.git.tag must be text", "in quotes"),
        (" linux_x86_64", "§", "torch.2.5.1.platform must be text", "in quotes"),
        (TAG_CK, "    ck: §yes\n", "flash-attn.2.6.3.ck must be a mapping", "'key: value'"),
        ("tag on GitHub", "§GitHub", "flash-attn.2.6.3.source is too short", "to check it"),
        ("the compiler of this image stops", "§so it is", "exclude.0.reason is too short", "check"),
    ),
    "a range that is empty, or that no release can hold": (
        ("20 MB to 1000 MB", "§20 MB to 999 kB", f"{SIZE} is an empty range: '20 MB to 999 kB'", "the smaller"),
        ("'>=3.2.0,<3.9'", "§'>=4.0,<3.9'", f"{WINDOW} is an empty range: '>=4.0,<3.9'", "the older version first"),
        (
            *("20 MB to 1000 MB", "§20 MB to 2148 MB"),
            f"{SIZE} allows more than an asset of a GitHub release, 2 GiB: '20 MB to 2148 MB'",
            "build them for fewer archs",
        ),
    ),
    "a file of another release than its entry": (
        (
            *("flash_attn-2.8.3.tar.gz", "§flash_attn-2.8.2.tar.gz"),
            *("flash_attn-2.8.2.tar.gz is not the sdist of 2.8.3", "write flash_attn-2.8.3.tar.gz"),
        ),
        (
            *("einops-0.8.2-py3", "§torch-0.8.2-py3"),
            *("torch-0.8.2-py3-none-any.whl is not a wheel of einops 0.8.2", "its name begins with einops-0.8.2-"),
        ),
    ),
    "a text beyond its limits": (
        ("'>=2.9'", f"§'>={'9' * 5000}'", f"exclude.0.torch is not a version specifier: '>={'9' * 353}...", "looks"),
        ("a log of ours", "§'    blanks'", "exclude.0.source begins or ends with a space", "remove the space"),
        ("a log of ours", f"§{'a' * 1001}", "exclude.0.source is longer than 1000 characters", "shorten it"),
    ),
    "an inconsistent entry": (
        (ARCHS, f"§{ARCHS}      may-work: {{gfx1100: it compiles}}\n", TWO_ANSWERS, "keep one"),
        (ARCHS, f"§{ARCHS}      fails: {{gfx1100: it stops there}}\n", TWO_ANSWERS, "keep one"),
        (
            *("[gfx942, gfx1030, gfx1100]\n", "§[gfx1100]\n    may-work: {gfx1100: seen in a list}\n"),
            *(TWO_ANSWERS, "keep one"),
        ),
        (
            f"  '2.6.3':\n    git:\n{ORIGIN}    python: '>=3.8,<3.12'\n{TAG_CK}",
            f"  §'2.6.3':\n    git:\n{ORIGIN}    python: '>=3.8,<3.12'\n",
            "2.6.3 has no backend",
            "add ck",
        ),
        (
            "https://download.pytorch.org/whl/rocm6.2",
            "§https://download.pytorch.org/whl/rocm6.4",
            "this is the index of ROCm 6.4",
            "write that of ROCm 6.2",
        ),
        ("git:\n      repo", f"§{AN_SDIST}git:\n      repo", "flash-attn.2.6.3 must have one origin", "sdist or git"),
        (
            *(ORIGIN, REPOSITORY.replace("repo", "§repo")),
            *("flash-attn.2.6.3.git has neither a tag nor a commit", "a tag, a commit, or both"),
        ),
        (
            *(f"  '2.6.3':\n    git:\n{ORIGIN}", f"  §'2.6.3':\n    git:\n{REPOSITORY}{COMMIT}"),
            *("2.6.3 is built from the commit 418d677", "write '2.6.3+git418d677'"),
        ),
        (
            *("'2.6.3':\n    git", "§'2.6.3+git418d677':\n    git"),
            *("2.6.3+git418d677 is built from a release", "write '2.6.3'"),
        ),
        (AXES, "§", "exclude.0 names no axis and would drop every cell", "add flash-attn, python, torch"),
    ),
}


def test_a_patch_release_of_rocm_may_have_the_index_of_its_minor_release(path: Path) -> None:
    path.write_text(SMALL.replace("  '6.2':", "  '6.2.1':"))
    assert load_matrix(path).rocm["6.2.1"].index.endswith("/rocm6.2")


@pytest.mark.parametrize("mistake", REFUSED)
def test_a_mistake_is_refused_at_its_place_with_the_correction(path: Path, mistake: str) -> None:
    for old, new, what, hint in REFUSED[mistake]:
        assert_refused(path, edited((old, new)), what, hint)


def test_equal_kernel_sources_with_another_trim_are_refused(path: Path) -> None:
    """They would be one kernel set that is compiled from two lists."""
    digest, sdist, git = "a" * 64, "  '2.8.3':\n", "  '2.6.3':\n"
    trim = "    ck:\n      trim: {filters: [{direction: fwd, filter: '*_lse*'}], source: written for the tests}\n"
    both = ((sdist, f"{sdist}    kernel-sources: {digest}\n"), (git, f"{git}    kernel-sources: §{digest}\n"))
    text = edited(*both)
    first = text.replace("    ck:\n", trim, 1)
    assert_refused(path, first, "2.6.3 has the kernel sources of 2.8.3, and another trim", "give both the same trim")
    path.write_text(text.replace("§", ""))
    assert load_matrix(path).flash_attn["2.6.3"].kernel_sources == digest


def test_every_fact_but_a_pinned_origin_needs_a_source() -> None:
    facts = [*Fact.__subclasses__(), *(inner for fact in Fact.__subclasses__() for inner in fact.__subclasses__())]
    without = {
        fact.__name__ for fact in facts if not (field := fact.model_fields.get("source")) or not field.is_required()
    }
    assert without == {"Matrix", "Sdist", "GitTag", "GeneratorFilter", "Build"}


SHA256 = "54058201ac7087911181bfec4af6091bb59380360f069276601256a76af08193"
IMAGE, INDEX = "rocm.6.4.images.0", "https://download.pytorch.org/whl/rocm6.4"

WRONG_FORMS = (
    ("'2.6.3'", "§'2.6.x'", "flash-attn.2.6.x is not a version", "a version looks like 2.9.1"),
    ("'2.8.3':", f"§'{'9' * 40}':", f"flash-attn.{'9' * 40} is not a version", "a version looks like 2.9.1"),
    ("'3.11']", "§'3.11.2']", "python.1 is not a Python version", "3.12"),
    ("gfx1030", "§GFX90A", "rocm.6.4.archs.1 is not a known offload arch", "write gfx90a"),
    ("gfx1030", "§gfx1039", "rocm.6.4.archs.1 is not a known offload arch", "write gfx103"),
    ("'6.4':", "§'6.4.post1':", "rocm.6.4.post1 is not a version of ROCm", "looks like 7.2"),
    ("distribution", "digest: §latest\n        distribution", f"{IMAGE}.digest is not an image digest", "sha256: "),
    ("'>=3.9'", "§'3.9 or so'", "flash-attn.2.8.3.python is not a version specifier", "looks like >=3.2.0,<3.9"),
    ("'>=3.9'", "§'>=3.*'", "flash-attn.2.8.3.python is not a version specifier", "Invalid specifier"),
    (COMMIT[14:-1], "§418d677", "flash-attn.2.6.3.git.commit is not a commit", "40 of the digits 0-9a-f"),
    (SHA256, "§54058201AC", "dependencies.einops.sha256 is not a sha256", "64 of the digits 0-9a-f"),
    *(
        (REPOSITORY[18:-1], f"§{url}", "flash-attn.2.6.3.git.repository is not a repository", "like https://github")
        for url in ("ext::sh -c touch", "http://github.com/a/b")
    ),
    *(
        (INDEX, f"§{url}", "rocm.6.4.index is not the address of an index", "https://")
        for url in ("http://download.pytorch.org/whl", "file:///srv/whl")
    ),
    *(
        ("rocm/pytorch:first", f"§'{image}'", f"{IMAGE}.tag is not an image with its tag", "like rocm/pytorch:rocm7")
        for image in ("rocm/pytorch", "ROCm/pytorch:first", "rocm/pytorch:latest", f"rocm/pytorch@sha256:{'0' * 64}")
    ),
    ("/opt/venv/bin/python", "§/opt/../bin/python", f"{IMAGE}.python-path is not a path in an image", "like /opt/rocm"),
    ("manylinux_2_28_x86_64", "§win_amd64", "torch.2.9.1.platform is not a platform of torch", "like manylinux_2_28"),
    ("einops:", "§'ein_ops':", "dependencies.ein_ops is not a normalized project name", "looks like einops"),
    (
        *("einops-0.8.2-py3-none-any.whl", "§einops-0.8.2-cp311-cp311-linux_x86_64.whl"),
        *("dependencies.einops.wheel is not a pure wheel", "looks like einops-0.8.2-py3-none-any.whl"),
    ),
)


def test_a_text_of_the_wrong_form_is_refused_with_an_example(path: Path) -> None:
    for old, new, what, hint in WRONG_FORMS:
        value = new.partition(HERE)[2].partition("\n")[0].strip("':]")
        assert_refused(path, edited((old, new)), f"{what}: {value!r}", hint)


def test_a_remark_must_not_have_invisible_characters(path: Path) -> None:
    for character in "\u202e\u2066\u200b\u00ad\u3164\u2028\x1b\n\t":
        for text in ("the compiler of this image stops", "a log of ours"):
            written = text.replace(" ", f" \\u{ord(character):04x}", 1)
            key = "reason" if text.startswith("the") else "source"
            what = f"exclude.0.{key} has the character U+{ord(character):04X}"
            assert_refused(path, edited((text, f'§"{written}"')), what, "letters, digits and punctuation")


def test_other_valid_forms_load(path: Path) -> None:
    for old, new in (
        ("rocm/pytorch:first", "registry.example.org:5000/team/rocm__7:v1.0_x"),
        ("rocm/pytorch:first", "debian:forky"),
        ("https://github.com/Dao-AILab", "file:///srv/mirror"),
        ("tag: v2.6.3", "tag: release/v2.6.3-rc.1+b"),
        (INDEX, "https://localhost:8443/whl/"),
        ("'>=3.8,<3.12'", "'>=3.8, !=3.9.*, <3.12'"),
        ("einops-0.8.2-py3", "Einops-0.8.2-py2.py3"),
        ("a log of ours", "a log of Ørsted \u2013 \u201cthe compiler stops\u201d, 100 µs, 5 £"),
    ):
        path.write_text(edited((old, new)))
        assert load_matrix(path) != small_matrix()


TEXTS = [place for place, value in _leaves(yaml.safe_load(SMALL)) if isinstance(value, str)]


def test_every_text_but_a_remark_rejects_hostile_values(path: Path) -> None:
    """A third of the texts of the matrix in one load, because an error lists 50 mistakes at most."""
    for hostile in ("--{}", "-", "../{}", "{}/../x", "{}\u202e", "\x1b[31m{}", "{}\n", "{}$(id)", "9" * 5000):
        for third in (TEXTS[::3], TEXTS[1::3], TEXTS[2::3]):
            values, expected = yaml.safe_load(SMALL), set()
            for *way, last in third:
                entry = reduce(getitem, way, values)
                entry[last] = hostile.format(entry[last])
                is_remark = last in ("source", "reason")
                if not is_remark or not hostile.isprintable() or hostile == "-" or len(hostile) > 1000:
                    expected.add(".".join(map(str, (*way, last))))
            lines = refuse(path, yaml.safe_dump(values)).which.splitlines()
            assert expected <= {line.strip().partition(": ")[2].partition(" ")[0] for line in lines}, hostile


def test_a_version_has_one_spelling(path: Path) -> None:
    for version, instead in (
        ("2.6.3+rocm6.2", "2.6.3"),
        ("2.6.3-1", "2.6.3.post1"),
        ("v2.6.3", "2.6.3"),
        (" 2.6.3", "2.6.3"),
        ("2.06.3", "2.6.3"),
        ("1!2.6.3", "2.6.3"),
        ("2.6.3.RC1", "2.6.3rc1"),
    ):
        what = f"flash-attn.{version} is not a normalized version: {version!r}"
        assert_refused(path, edited(("'2.6.3'", f"§'{version}'")), what, f"write '{instead}'")


TRIM = """\
      trim:
        filters:
          - {direction: fwd, filter: '*_lse*'}
          - {direction: fwd_splitkv, filter: '*@*_nlogits_*'}
        source: the bindings of this release
"""


def with_trim(*edits: Edit) -> str:
    """The text with filters for 2.6.3, after these edits of them."""
    trim = TRIM
    for old, new in edits:
        assert trim.count(old) == 1
        trim = trim.replace(old, new)
    return edited((TAG_CK, TAG_CK + trim))


def test_filters_of_the_generator_load_and_wrong_ones_are_refused(path: Path) -> None:
    path.write_text(with_trim())
    loaded = load_matrix(path).flash_attn
    filters = [(item.direction, item.filter) for item in loaded["2.6.3"].filters]
    assert filters == [("fwd", "*_lse*"), ("fwd_splitkv", "*@*_nlogits_*")]
    assert loaded["2.8.3"].filters == ()
    here, marked = "flash-attn.2.6.3.ck.trim", ("        filters", "        §filters")
    not_a_filter, not_a_direction = (f"is not a {what} of the generator" for what in ("filter", "direction"))
    wrong: list[tuple[list[Edit], str, str]] = [
        ([("trim:\n", "trim:\n        §patterns: []\n")], "unknown key 'patterns'", "known here: filters, proof"),
        ([("'*_lse*'", "§'--help'")], f"{here}.filters.0.filter {not_a_filter}: '--help'", "*_nlogits_"),
        ([("'*_lse*'", "§'*,*'")], f"{here}.filters.0.filter {not_a_filter}: '*,*'", "*_nlogits_"),
        ([("fwd,", "§fwd bwd,")], f"{here}.filters.0.direction {not_a_direction}: 'fwd bwd'", "splitkv"),
        ([("{direction: fwd, ", "§{")], f"{here}.filters.0.direction is missing", "add it"),
        ([marked, ("fwd_splitkv", "fwd")], f"{here} has two filters for fwd", "one filter for each direction"),
        ([marked, ("        source: the bindings of this release\n", "")], f"{here}.source is missing", "add it"),
    ]
    for edits, what, hint in wrong:
        assert_refused(path, with_trim(*edits), what, hint)
    in_triton = edited(("      window:", "      §trim: {}\n      window:"))
    assert_refused(path, in_triton, "unknown key 'trim'", "known here: archs, wheel-size, source, window")


def test_several_mistakes_are_listed_in_the_order_of_the_file(path: Path) -> None:
    text = edited(
        ("'3.11']", "'3.12']"),
        ("file: flash", "files: flash"),
        ("'2.6.3':", "2.6:"),
        ("gfx942, gfx1030", "x, y"),
        ("    index: https://download.pytorch.org/whl/rocm6.2\n", ""),
    )
    error = refuse(path, text)
    assert error.what == "7 mistakes in the matrix"
    assert [line.strip().removeprefix(f"{path}:") for line in error.which.splitlines()] == [
        "3:18: '3.12' is listed twice",
        "8:7: flash-attn.2.8.3.sdist.file is missing",
        "8:7: unknown key 'files'",
        "21:3: 2.6 is a number, not a version",
        "53:13: rocm.6.4.archs.0 is not a known offload arch: 'x'",
        "53:16: rocm.6.4.archs.1 is not a known offload arch: 'y'",
        "89:5: rocm.6.2.index is missing",
    ]
    assert error.hint.count("add it to gpu_names.csv") == 1, "a hint is given once"


def test_a_file_that_is_not_a_yaml_mapping_is_refused(path: Path) -> None:
    for content, place, what, hint in (
        ("", "1:1", "the file is empty", "start from the matrix.yaml"),
        ("7.2\n", "1:1", "the file must be a mapping", "'key: value'"),
        ("a: [b\n", "2:1", "did not find expected ',' or ']'", "brackets"),
        ("a:\n\tb: c\n", "2:1", "a tab cannot indent a line", "write spaces instead"),
        ("\ufeff\ta: b\n", "1:1", "a tab cannot indent a line", "spaces"),
        ('a: "\\ud800"\n', "1:7", "found invalid Unicode character escape code", "check"),
        ("a: b\nc: \x07\n", "2:4", "U+0007 is a control character", "plain text"),
        ("a: b\0", "1:5", "U+0000 is a control character", "plain text"),
        ("a: é\n".encode("latin-1"), "1:4", "byte 0xe9 is not UTF-8", "save the file as UTF-8"),
        ("a: b\n".encode("utf-16"), "1:1", "byte 0xff is not UTF-8", "save the file as UTF-8"),
    ):
        error = refuse(path, content)
        assert error.which == f"{path}:{place}: {what}"
        assert hint in error.hint


def test_yaml_bombs_are_refused(path: Path) -> None:
    for text, what in (
        ("&a [*a]\n", "nested more than 20 deep"),
        ("[" * 200_000, "nested more than 20 deep"),
        (
            "- &a0 [x, y]\n"
            + "".join(f"- &a{n} [{', '.join([f'*a{n - 1}', f'*a{n - 1}'] * 8)}]\n" for n in range(1, 9)),
            f"more than {MAX_VALUES:,} values",
        ),
    ):
        assert refuse(path, text).which.endswith(what)


def test_too_many_combinations_are_refused(path: Path) -> None:
    values = yaml.safe_load(SMALL)
    values["torch"] |= {f"3.{minor}": values["torch"]["2.9.1"] for minor in range(300)}
    index = {"index": "https://example.invalid/torch"}
    values["rocm"] |= {f"7.{minor}": {**values["rocm"]["6.4"], **index} for minor in range(100)}
    error = refuse(path, yaml.safe_dump(values))
    assert error.which == f"{path}:1:1: the axes make 246,432 combinations"
    assert f"{MAX_COMBINATIONS:,}" in error.hint


def test_an_error_is_short(path: Path) -> None:
    values = yaml.safe_load(SMALL)
    values["dependencies"] = {f"\u202e{number}{'x' * 500}": values["dependencies"]["einops"] for number in range(60)}
    lines = refuse(path, yaml.safe_dump(values)).which.splitlines()
    assert (len(lines), lines[-1]) == (51, "  and 10 more")
    assert max(map(len, lines)) < len(str(path)) + 420


def test_merge_keys_and_a_mistake_in_an_anchored_entry_are_one_error(path: Path) -> None:
    text = SMALL[: SMALL.index("  '2.5.1':\n    python")] + "  '2.5.1':\n    §<<: *torch\n"
    merged = text.replace("'2.9.1':", "'2.9.1': &torch") + SMALL[SMALL.index("\nrocm:") :]
    assert_refused(path, merged, "merge keys (<<) are not supported", "'key: *name' for a whole entry")
    anchored = edited(("    ck:\n", "    ck: &ck\n      §sources: x\n"), (TAG_CK, "    ck: *ck\n"))
    assert_refused(path, anchored, "unknown key 'sources'", "known here: archs, wheel-size, source")


def test_the_form_of_the_file_does_not_matter(path: Path) -> None:
    for content in (
        SMALL.encode(),
        (SMALL.replace("\n", "\r\n").encode()),
        (codecs.BOM_UTF8 + SMALL.encode()),
        (SMALL.rstrip().encode()),
        (SMALL.replace("source: sdist", "source: !!python/object:os.abort sdist").encode()),
        (SMALL.encode().ljust(MAX_BYTES, b"#")),
    ):
        path.write_bytes(content)
        assert load_matrix(path) == small_matrix()
    text, place = split(edited(("[ck, triton]", "[ck, §ck]")))
    for content in (text.replace("\n", "\r\n").encode(), codecs.BOM_UTF8 + text.encode()):
        assert refuse(path, content).which == f"{path}:{place}: 'ck' is listed twice"


def test_a_file_that_cannot_be_read_is_refused(tmp_path: Path) -> None:
    for path, what, which in (
        (tmp_path / "none", "no such file", f"{tmp_path}/none"),
        (tmp_path, "cannot read", f"{tmp_path} (Is a directory)"),
        (Path("/dev/zero"), "too large for a matrix", "/dev/zero:1:1: it has more than 300,000 bytes"),
    ):
        with pytest.raises(InputError) as refused:
            load_matrix(path)
        assert (refused.value.what, refused.value.which) == (what, which)
        assert "--matrix" in refused.value.hint


@given(st.text() | st.text("[]{}&*a:-'\"#|>? \n\t\r", max_size=60))
def test_any_text_is_read_or_refused_at_a_place(text: str) -> None:
    try:
        assert () in Document(text).marks
    except UnreadableError as error:
        assert error.problem.line >= 1
        assert error.problem.column >= 1


@given(line=st.integers(0, SMALL.count("\n") - 1), value=st.sampled_from(ODD_VALUES), key=st.booleans())
def test_an_odd_value_anywhere_is_read_or_refused(
    tmp_path_factory: pytest.TempPathFactory, line: int, value: str, key: bool
) -> None:
    path = tmp_path_factory.getbasetemp() / "odd.yaml"
    lines = SMALL.splitlines()
    name, colon, rest = lines[line].partition(": ")
    lines[line] = f"{value}{colon}{rest}" if key else f"{name}{colon}{value}"
    path.write_text("\n".join(lines))
    try:
        load_matrix(path)
    except InputError as error:
        assert error.which.startswith(f"{path}:")
        assert error.hint


def test_an_aiter_that_nobody_builds_or_that_could_be_amds_is_refused(path: Path) -> None:
    old, new = PREVIEW
    triton = "    triton: §{archs: [gfx942], window: '>=3.2.0,<3.9', wheel-size: 1 kB to 5 MB, source: its setup.py}\n"
    assert_refused(
        path,
        edited((old, new.replace("    source: commit", f"{triton}    source: commit"))),
        "the Triton kernels of 2.8.4+git4a948e9 are in amd-aiter, which this file does not build",
        "add amd-aiter with git",
    )
    entry = (
        "  amd-aiter:\n    version: §'0.1.20'\n    wheel: amd_aiter-0.1.20-py3-none-any.whl\n"
        f"    git: {{repository: 'https://x.org/a', commit: '{'9' * 40}'}}\n    source: its commit\n"
    )
    own = "0.1.20 could be a version of AMD's, which ours must never replace"
    text = edited(("dependencies:\n", f"dependencies:\n{entry}"))
    assert_refused(path, text, own, "write 0.0. and the date of the commit")


def test_a_dependency_has_one_pinned_origin(path: Path) -> None:
    for new, what in (
        (f"    git: {{repository: 'https://x.org/a', commit: '{'9' * 40}'}}\n    sha256: 54058", "must have one or"),
        ("    # 54058", "must have one origin"),
        ("    git: {repository: 'https://x.org/a', tag: v1}\n    # 54058", "has a tag that can move"),
    ):
        assert what in refuse(path, edited(("    sha256: 54058", new))).which
