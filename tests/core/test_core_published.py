"""Rules about published wheels: verified or not, address, order."""

from __future__ import annotations

from datetime import datetime, timezone

from packaging.utils import parse_wheel_filename
from packaging.version import Version

from wheelfactory.core.label import Label
from wheelfactory.core.published import (
    added_later,
    best_first_key,
    build_key,
    name_gates,
    names_local_file,
    version_key,
    wheel_url,
    why_unverified,
)

REQUIRED = ("archive", "import", "emulation")
PASSED = tuple((name, "passed") for name in REQUIRED)


def test_a_wheel_that_passed_every_required_gate_is_verified() -> None:
    for more in ((), (("gpu", "not run"),), (("gpu", "passed"),)):
        assert why_unverified(REQUIRED, (*PASSED, *more)) == ""


def test_the_reason_names_failed_and_missing_checks() -> None:
    for results, reason in (
        ((*PASSED[:2], ("emulation", "not run")), "not checked: numbers"),
        ((), "not checked: archive, import, numbers"),
        ((*PASSED, ("gpu", "failed")), "failed: gpu"),
        ((*PASSED[:2], ("emulation", "failed")), "failed: numbers"),
        ((*PASSED[:2], ("emulation", "pasted")), "not checked: numbers"),
        ((("archive", "failed"), ("import", "not run")), "failed: archive; not checked: import"),
    ):
        assert why_unverified(REQUIRED, results) == reason


def test_a_gate_that_a_published_wheel_does_not_name_was_added_later_and_refuses_nothing() -> None:
    assert added_later(REQUIRED, ["archive", "import"]) == ("emulation",)
    assert why_unverified(REQUIRED, PASSED[:2]) == ""
    assert name_gates(added_later(REQUIRED, ["archive"])) == "import, numbers"
    assert added_later(REQUIRED, REQUIRED) == added_later(REQUIRED, []) == ()


def test_versions_are_ordered_as_packaging_orders_them() -> None:
    versions = (
        *("2.7.4.post1", "2.8.0.dev1", "2.8.0rc1.dev2", "2.8.0rc1", "2.8.0rc2", "2.8.0rc10", "2.8.0", "2.8.3"),
        *("2.8.3.post1.dev1", "2.8.3.post1", "2.8.3.post2", "2.8.3.post10", "2.8.4.dev1", "2.8.4a1", "2.8.4b1"),
        *("2.8.4rc1", "2.8.4", "2.8.10", "2.10"),
    )
    as_text = sorted(versions)
    assert sorted(as_text, key=version_key) == sorted(as_text, key=Version) != as_text
    assert version_key("2.8") == version_key("2.8.0+rocm62torch2.5")


def test_ck_is_better_than_triton_then_the_newest_is_best() -> None:
    day = datetime(2026, 1, 1, tzinfo=timezone.utc)
    ordered = (
        *(("rocm64torch2.9", "2.8.4", day), ("rocm64torch2.9", "2.8.4rc1", day), ("rocm64torch2.9", "2.8.4.dev1", day)),
        *(("rocm64torch2.9", "2.8.3", day.replace(day=2)), ("rocm64torch2.9", "2.8.3", day)),
        *(("rocm63torch2.9", "2.8.3", day), ("rocm64torch2.8", "2.8.3", day), ("rocm64torch2.9triton", "2.8.4", day)),
    )
    keys = [best_first_key(Label.parse(label), version, "a-1-py3", published) for label, version, published in ordered]
    assert keys == sorted(keys)


def test_a_replacement_is_better_than_what_it_replaces_and_a_later_build_than_both() -> None:
    label, day = Label.parse("rocm64torch2.9"), datetime(2026, 1, 1, tzinfo=timezone.utc)
    names = [f"flash_attn-2.8.3+rocm64torch2.9{build}-cp311-cp311-linux_x86_64.whl" for build in BUILDS]
    assert sorted(names, key=lambda name: best_first_key(label, "2.8.3", name, day), reverse=True) == names
    as_installers = [parse_wheel_filename(name)[2] for name in names]
    assert sorted(as_installers) == as_installers
    assert list(map(build_key, names)) == [(0, 0), (0, 1), (1, 0), (1, 1), (1, 2), (2, 0), (10, 0)]


BUILDS = ("", "-0a", "-1", "-1a", "-1b", "-2", "-10")


def test_a_wheel_is_below_the_release_unless_its_row_has_an_address() -> None:
    name = "flash_attn-2.8.3+rocm64torch2.9-cp311-cp311-linux_x86_64.whl"
    quoted = name.replace("+", "%2B")
    for base in ("https://example.org/site", "https://example.org/site/"):
        assert wheel_url(name, None, base) == f"https://example.org/site/wheels/{quoted}"
    assert wheel_url(name, None, "") == f"wheels/{quoted}"
    assert wheel_url(name, f"https://example.org/{quoted}", "https://example.com") == f"https://example.org/{quoted}"


def test_only_a_local_manifest_may_name_local_files() -> None:
    for url, base, refused in (
        ("file:///srv/a.whl", "https://example.org/", True),
        ("file:///srv/a.whl", "", True),
        ("file:///srv/a.whl", "file:///srv/", False),
        ("https://example.org/a.whl", "https://example.com/", False),
        (None, "https://example.org/", False),
    ):
        assert names_local_file(url, base) is refused, (url, base)
