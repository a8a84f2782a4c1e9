"""The text of a matrix with other tags and digests in it, and every other character as it was."""

from __future__ import annotations

from refresh.images import ImagePin, edit_images

PLACE, SLIM = ("rocm", "7.2", "images", 0), ("rocm", "7.2", "slim")
PIN = ImagePin("a/b:new", "sha256:" + "1" * 64)

TEXT = """\
# a remark with tag: a/b:old in it
rocm:
  '7.2':
    images:   # two of them
      - tag: a/b:old   # seen in May

        torch: '2.9.1'
      - {tag: "a/b:old", torch: '2.8.0'}
    slim:
      source: where
      tag: 'a/b:old'
      digest: sha256:0
"""


def test_a_new_digest_stands_below_the_tag_and_all_else_stays() -> None:
    assert edit_images(TEXT, {PLACE: PIN}) == TEXT.replace(
        "      - tag: a/b:old   # seen in May\n",
        f"      - tag: a/b:new   # seen in May\n        digest: {PIN.digest}\n",
    )


def test_a_digest_that_is_there_is_replaced_and_quotes_are_kept() -> None:
    assert edit_images(TEXT, {SLIM: PIN}) == TEXT.replace("tag: 'a/b:old'", "tag: 'a/b:new'").replace(
        "sha256:0", PIN.digest
    )


def test_a_mapping_in_braces_stays_on_its_line() -> None:
    edited = edit_images(TEXT, {("rocm", "7.2", "images", 1): PIN})
    assert edited == TEXT.replace('{tag: "a/b:old",', f'{{tag: "a/b:new", digest: {PIN.digest},')


def test_line_ends_marks_and_letters_of_any_kind_stay() -> None:
    for text in (TEXT.replace("\n", "\r\n"), "\ufeff" + TEXT, TEXT.replace("remark", "r\u00e9mark \U0001f600")):
        end = "\r\n" if "\r" in text else "\n"
        edited = edit_images(text, {PLACE: PIN})
        assert f"{end}        digest: {PIN.digest}{end}" in edited
        line = f"        digest: {PIN.digest}{end}"
        assert edited.replace(line, "").replace("a/b:new", "a/b:old") == text
