"""Edits against a model: what is replaced, what is refused, and that several are all or nothing."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from canonical.environments.coding_agent.edits import Edit, EditError, apply_edit, apply_edits

# A small alphabet, so that texts occur often in each other, and overlap.
texts = st.text("ab\n", max_size=12)
edits = st.builds(
    Edit, old=st.text("ab\n", max_size=3), new=st.text("abc", max_size=3), replace_all=st.booleans()
)


def places(text: str, old: str) -> list[int]:
    return [index for index in range(len(text)) if old and text[index : index + len(old)] == old]


def is_refused(text: str, edit: Edit) -> bool:
    found = places(text, edit.old)
    return not found or edit.old == edit.new or (len(found) > 1 and not edit.replace_all)


@given(texts, edits)
def test_an_edit_is_refused_exactly_when_its_text_is_empty_absent_ambiguous_or_unchanged(
    text: str, edit: Edit
) -> None:
    if is_refused(text, edit):
        with pytest.raises(EditError):
            apply_edit(text, edit)
    else:
        apply_edit(text, edit)


@pytest.mark.parametrize(
    ("text", "old", "hint"),
    [
        (
            "a\r\nb\r\n",
            "a\nb",
            r"does with other line ends: there, lines of the file end with \\r\\n \(CRLF\)",
        ),
        ("a\nb\n", "a\r\nb", r"lines of the file end with \\n, not with \\r\\n \(CRLF\)"),
        ("a\r\nb\r\n", "a\nc", r"does not occur in the file$"),
    ],
)
def test_an_old_text_that_differs_by_its_line_ends_alone_is_hinted_at(text: str, old: str, hint: str) -> None:
    with pytest.raises(EditError, match=hint):
        apply_edit(text, Edit(old=old, new="x"))


@given(texts, edits)
def test_an_edit_changes_what_it_names_and_nothing_else(text: str, edit: Edit) -> None:
    if is_refused(text, edit):
        return
    after, count = apply_edit(text, edit)
    pieces = text.split(edit.old)
    assert after == edit.new.join(pieces)
    assert count == len(pieces) - 1


@given(texts, st.lists(edits, min_size=1, max_size=4))
def test_several_edits_are_made_one_on_the_other_or_not_at_all(text: str, several: list[Edit]) -> None:
    expected, failing = text, 0
    for number, edit in enumerate(several, start=1):
        if is_refused(expected, edit):
            failing = number
            break
        expected = expected.replace(edit.old, edit.new)
    if failing:
        with pytest.raises(EditError) as caught:
            apply_edits(text, several)
        assert len(several) == 1 or str(caught.value).startswith(f"edit {failing} of {len(several)}: ")
    else:
        after, counts = apply_edits(text, several)
        assert after == expected
        assert len(counts) == len(several)


def test_the_number_of_places_is_said() -> None:
    with pytest.raises(EditError, match="occurs 3 times"):
        apply_edit("x x x", Edit(old="x", new="y"))


def test_places_that_overlap_are_not_one_place() -> None:
    with pytest.raises(EditError, match="occurs 2 times"):
        apply_edit("aaa", Edit(old="aa", new="b"))


def test_a_text_that_repeats_itself_is_counted_no_further_than_a_person_reads() -> None:
    with pytest.raises(EditError, match="occurs 100 or more times"):
        apply_edit("#" * 1_000_000, Edit(old="#" * 500_000, new="y", replace_all=False))


def test_many_short_texts_cannot_become_more_than_memory_holds() -> None:
    with pytest.raises(EditError, match="would have 4000000000000 characters"):
        apply_edit("a" * 4_000_000, Edit(old="a", new="b" * 1_000_000, replace_all=True))
    shorter, count = apply_edit("ab" * 3_000_000, Edit(old="ab", new="a", replace_all=True))
    assert (len(shorter), count) == (3_000_000, 3_000_000)
