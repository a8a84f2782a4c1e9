"""METADATA of a finished wheel: torch is pinned to its minor, the version has the label, the rest is unchanged."""

from __future__ import annotations

from email.parser import Parser

import pytest
from packaging.version import Version

from wheelfactory.core.errors import InputError
from wheelfactory.core.label import Label
from wheelfactory.wheel.metadata import NEVER_REQUIRED, change_metadata, label_version, protect_metadata

LABEL = Label.parse("rocm62torch2.5")

UPSTREAM = """\
Metadata-Version: 2.4
Name: flash_attn
Version: 2.8.3
License: Copyright (c) 2022, the authors
        All rights reserved.
        
        Version: of these words no one cares
\tRequires-Dist: torch is not said here
Classifier: Programming Language :: Python :: 3
Requires-Python: >=3.9
Requires-Dist: torch
Requires-Dist: einops
Requires-Dist: pytest; extra == "test"
Provides-Extra: test
Dynamic: author

# Flash Attention \N{HIGH VOLTAGE SIGN} \N{GREEK SMALL LETTER ALPHA}

Requires-Dist: torch
Version: 1.0
"""  # noqa: W293


def requirements(metadata: str) -> list[str]:
    return Parser().parsestr(metadata).get_all("Requires-Dist", [])


def with_requirement(text: str) -> str:
    return UPSTREAM.replace("Requires-Dist: torch\nRequires-Dist: einops", f"{text}\nRequires-Dist: einops", 1)


def test_only_the_version_and_the_requirement_on_torch_change() -> None:
    before = UPSTREAM.replace("Requires-Dist: torch\nRequires-Dist: einops\n", "Requires-Dist: einops\n", 1)
    expected = before.replace("Version: 2.8.3\n", "Version: 2.8.3+rocm62torch2.5\n", 1).replace(
        'extra == "test"\n', 'extra == "test"\nRequires-Dist: torch==2.5.*\n', 1
    )

    assert protect_metadata(UPSTREAM, LABEL) == expected


TORCH_REQUIREMENTS: list[str] = [
    "Requires-Dist: torch",  # bare
    "Requires-Dist: torch>=2.4",  # open window
    "Requires-Dist: torch (==2.4.*)",  # in brackets, as METADATA once had it
    "Requires-Dist: torch==2.4.1+cu124",  # a CUDA build
    'Requires-Dist: torch; python_version >= "3.9"',  # with a marker
    'Requires-Dist: torch; extra == "cuda"',  # in an extra
    "Requires-Dist: torch @ https://example.org/torch.whl",  # by address
    "Requires-Dist: Torch",  # another case
    "requires-dist:torch",  # header in lower case
    "Requires-Dist:\n        torch",  # folded
    "Requires-Dist: torch\nRequires-Dist: torch<3",  # twice
]


def test_any_requirement_on_torch_becomes_the_pin() -> None:
    for requirement in TORCH_REQUIREMENTS:
        found = requirements(protect_metadata(with_requirement(requirement), LABEL))

        assert found == ["einops", 'pytest; extra == "test"', "torch==2.5.*"]


def test_requirements_that_only_sound_like_torch_stay() -> None:
    for name in ("torchvision", "torch-geometric", "triton-model-analyzer", 'einops; extra == "torch"'):
        assert name in requirements(protect_metadata(with_requirement(f"Requires-Dist: {name}"), LABEL))


def test_triton_is_never_required() -> None:
    for name in (*sorted(NEVER_REQUIRED), "Triton>=3.6.0", "pytorch_triton_rocm==3.5.1"):
        found = requirements(protect_metadata(with_requirement(f"Requires-Dist: {name}"), LABEL))
        assert "triton" not in "".join(found).lower()


def test_the_pin_is_the_last_header_even_of_the_shortest_metadata() -> None:
    head = "Name: flash_attn\nVersion: 2.8.3"
    for end in ("", "\n", "\n\n", "\n\n# Flash\n", "\nRequires-Dist: torch\n"):
        pinned = "Name: flash_attn\nVersion: 2.8.3+rocm62torch2.5\nRequires-Dist: torch==2.5.*\n"
        expected = pinned + end.removeprefix("\n").removeprefix("Requires-Dist: torch\n")
        assert protect_metadata(head + end, LABEL) == expected
    windows = UPSTREAM.replace("\n", "\r\n")
    assert protect_metadata(windows, LABEL) == protect_metadata(UPSTREAM, LABEL).replace("\n", "\r\n")


@pytest.mark.parametrize(
    ("version", "expected"),
    [
        ("2.8.3", "2.8.3+rocm62torch2.5"),
        ("2.8.3+rocm64torch2.9", "2.8.3+rocm62torch2.5"),
        ("2.7.4.post1+cu12torch2.6", "2.7.4.post1+rocm62torch2.5"),  # upstream's CUDA label
    ],
)
def test_the_label_replaces_a_local_version(version: str, expected: str) -> None:
    metadata = protect_metadata(UPSTREAM.replace("Version: 2.8.3\n", f"Version: {version}\n", 1), LABEL)

    assert label_version(Version(version), LABEL) == expected
    assert Parser().parsestr(metadata)["Version"] == expected


@pytest.mark.parametrize(
    ("line", "header"),
    [
        pytest.param("Requires-Dist: torch >>> 2", "Requires-Dist", id="an unreadable requirement"),
        pytest.param("Version: two", "Version", id="an unreadable version"),
    ],
)
def test_metadata_that_cannot_be_read_is_an_input_error(line: str, header: str) -> None:
    with pytest.raises(InputError, match=f"damaged METADATA: {header}"):
        protect_metadata(f"{line}\n{UPSTREAM}", LABEL)


def test_a_wheel_whose_kernels_are_in_aiter_requires_any_version_of_it_once() -> None:
    label = Label.parse("rocm72torch2.13tritongit4a948e9")
    upstream = with_requirement("Requires-Dist: triton>=3.6.0")

    finished = protect_metadata(upstream, label)

    assert requirements(finished)[-2:] == ["amd-aiter>=0.0", "torch==2.13.*"]
    assert protect_metadata(finished, label) == finished


def test_metadata_with_another_version_keeps_all_but_the_requirements_that_are_not_used() -> None:
    head = "Name: amd-aiter\nVersion: 0.0.0\nRequires-Dist: einops\nRequires-Dist: psutil>=5\n"
    assert change_metadata(f"{head}\nVersion: 0.0.0\n", "0.0.20260602", {"psutil"}) == (
        "Name: amd-aiter\nVersion: 0.0.20260602\nRequires-Dist: einops\n\nVersion: 0.0.0\n"
    )
