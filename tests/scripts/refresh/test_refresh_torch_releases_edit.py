"""The text of a matrix with torch releases added to its lists, and every other character as it was."""

from __future__ import annotations

from refresh.torch_releases import edit_torch, merge_versions

TEXT = """\
# torch: ['2.9.1'] in a remark
rocm:
  '7.2':
    torch: ['2.13.0', '2.9.1']   # as of May
    index: here
  '7.1':
    torch:
      # the older ones

      - '2.10.0'   # measured
      - '2.9.1'
    index: there
  '7.0': {torch: ["2.9.1"], index: nowhere}
"""


def test_new_releases_stand_before_the_first_older_one() -> None:
    for listed, new, order in (
        (["2.9.1"], ["2.10.0"], ("2.10.0", "2.9.1")),
        (["2.10.0"], ["2.9.1"], ("2.10.0", "2.9.1")),
        (
            ["2.13.0", "2.9.1"],
            ["2.8.0", "2.14.1", "2.10.0", "2.11.0"],
            ["2.14.1", "2.13.0", "2.11.0", "2.10.0", "2.9.1", "2.8.0"],
        ),
        (["2.9.1", "2.13.0"], ["2.10.0"], ("2.10.0", "2.9.1", "2.13.0")),
        (["2.1"], ["2.10"], ("2.10", "2.1")),
    ):
        assert merge_versions(listed, new) == tuple(order)


def test_a_list_in_brackets_takes_a_release_at_either_end_and_between() -> None:
    edited = edit_torch(TEXT, {"7.2": ["2.8.0", "2.14.1", "2.11.0", "2.10.0"]})
    before, after = "['2.13.0', '2.9.1']   # as", "['2.14.1', '2.13.0', '2.11.0', '2.10.0', '2.9.1', '2.8.0']   # as"
    assert edited == TEXT.replace(before, after)


def test_a_list_of_dashes_takes_lines_of_the_same_indentation() -> None:
    edited = edit_torch(TEXT, {"7.1": ["2.11.0", "2.12.1", "2.9.2", "2.8.0", "2.7.1"]})
    assert edited == TEXT.replace(
        "      - '2.10.0'   # measured\n      - '2.9.1'\n",
        "      - '2.12.1'\n      - '2.11.0'\n      - '2.10.0'   # measured\n"
        "      - '2.9.2'\n      - '2.9.1'\n      - '2.8.0'\n      - '2.7.1'\n",
    )


def test_several_lists_are_edited_at_once() -> None:
    edited = edit_torch(TEXT, {"7.2": ["2.14.1"], "7.0": ["2.10.0"]})
    assert edited == edit_torch(edit_torch(TEXT, {"7.2": ["2.14.1"]}), {"7.0": ["2.10.0"]})
    assert """{torch: ['2.10.0', "2.9.1"],""" in edited


def test_line_ends_marks_and_letters_of_any_kind_stay() -> None:
    for old, new in (("\n", "\r\n"), ("# torch", "\ufeff# torch"), ("remark", "r\u00e9mark \U0001f600")):
        additions = {"7.2": ["2.14.1"], "7.1": ["2.11.0", "2.8.0"]}
        assert edit_torch(TEXT.replace(old, new), additions) == edit_torch(TEXT, additions).replace(old, new)


def test_a_last_line_without_an_end_gets_one() -> None:
    text = "rocm:\n  a:\n    torch:\n      - '2.9.1'"
    assert edit_torch(text, {"a": ["2.8.0", "2.7.1"]}) == f"{text}\n      - '2.8.0'\n      - '2.7.1'"
