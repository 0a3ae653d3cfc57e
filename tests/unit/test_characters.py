"""Characters are those of one version of Unicode, whatever version the running Python has."""

from __future__ import annotations

import unicodedata
from itertools import product
from types import SimpleNamespace

import numpy as np
import pytest
import xxhash
from hypothesis import given
from hypothesis import strategies as st

from stream.fingerprint import scheme
from stream.fingerprint.features.sentences import END
from stream.text import normalise as normalising
from stream.text.characters import TABLE, UNASSIGNED, UNICODE, classes
from stream.text.normalise import normalise, reference
from stream.text.segment import NO_WORD, kinds_of_characters
from tests.characters_table import class_of, table

ASSIGNED = [chr(point) for point in np.flatnonzero(classes() != UNASSIGNED).tolist()]
LATER = "\u1c89\U00011f02\U00016d67\U0001e6e3\U00031350\uffff\U0010ffff"
"""Letters and marks of Unicode 15 to 17, and noncharacters."""


def test_assigned_characters_have_the_classes_that_the_running_python_gives_them() -> None:
    assert len(ASSIGNED) > 280_000
    found = classes()[[ord(each) for each in ASSIGNED]].tolist()
    assert found == list(map(class_of, ASSIGNED))


def test_the_table_is_that_of_a_python_with_this_unicode() -> None:
    assert unicodedata.unidata_version != UNICODE or TABLE.read_text("ascii") == table()


def test_assigned_characters_and_their_compositions_are_normalised_as_on_every_python() -> None:
    assigned = [each for each in ASSIGNED if not "\ud800" <= each <= "\udfff"]
    alone = [each for each in assigned if not "\uac00" <= each < "\ud7a4"]  # Hangul composes by a formula
    parts = [part for each in alone if len(part := unicodedata.decomposition(each).split()) == 2]
    pairs = [[chr(int(point, 16)) for point in part] for part in parts if "<" not in part[0]]
    firsts, seconds = (sorted({pair[i] for pair in pairs}) for i in (0, 1))
    composed = list(map("".join, product(firsts, seconds)))
    found = reference("\n".join([*assigned, *composed]))
    assert (len(assigned), len(composed)) == (282_230, 37_740)
    assert xxhash.xxh3_64_hexdigest(found.encode()) == "e64c16c5ea20b446"


@given(st.lists(st.text() | st.sampled_from("aéÅ\u0301\u0345ﬁΣ각"), min_size=2), st.data())
def test_a_character_of_a_later_unicode_stays_and_stands_alone(parts: list[str], data: st.DataObject) -> None:
    between = [data.draw(st.sampled_from(LATER)) for _ in parts]
    text = "".join(map(str.__add__, parts, between))
    expected = "".join(map(str.__add__, map(normalise, parts), between))
    assert normalise(text) == reference(text) == expected


def test_the_standard_library_is_never_asked_about_a_later_character(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    def spy(form: str, text: str) -> str:
        asked.append(text)
        return unicodedata.normalize(form, text)

    spied = SimpleNamespace(**vars(unicodedata) | {"normalize": spy})
    reference("é")  # makes the tables
    monkeypatch.setattr(normalising, "unicodedata", spied)
    text = "".join(f"e{later}\u0301" for later in LATER)
    assert reference(text) == text
    assert set("".join(asked)) == set("e\uffff\u0301")
    assert kinds_of_characters()[list(map(ord, LATER))].tolist() == [NO_WORD] * len(LATER)


def test_white_space_ends_a_sentence_as_on_every_python() -> None:
    spaces = {each for each in ASSIGNED if each.isspace() and normalise(each) == each}
    ending = {each for each in map(chr, range(0x11_0000)) if END.match(f".{each}")}
    assert ending == spaces


def test_the_version_of_unicode_is_part_of_the_scheme(monkeypatch: pytest.MonkeyPatch) -> None:
    ours = scheme.Scheme().id
    monkeypatch.setattr(scheme, "UNICODE", "15.0.0")
    assert scheme.Scheme().id != ours
