"""Fast paths agree with the plain definitions."""

from __future__ import annotations

import functools
from unittest.mock import patch

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stream.errors import PageError
from stream.fingerprint.scheme import Scheme
from stream.fingerprint.seed import PUBLIC_SEED, hash_keys, unit_keys
from stream.page_rows.page_fingerprinter import PageFingerprinter
from stream.text import normalise_compiled
from stream.text.normalise import DROPPED, mapping, normalise, reference
from stream.text.normalise_compiled import encoded, normalised_points
from stream.text.points import Points, points_of
from stream.text.segment import pieces, segment, units, words
from stream.text.url import URL_RULES, url_key, url_rules
from tests import plain_fingerprint

KEYS = hash_keys(PUBLIC_SEED), unit_keys(PUBLIC_SEED)
MIXED = st.text(
    st.one_of(
        st.characters(),
        st.sampled_from("aZ09_ -,.。，你好世界々ｶﾞがé́̂ἀﷺ각가ᄀᆨAＡⅣ\ud800\udfb7\0ไที่ខ្មែहि\u0308\u00ad\u200b"),
    )
)
LONG = st.lists(MIXED, min_size=3, max_size=12).map(("界" * 40).join)
ASCII = st.text(st.characters(max_codepoint=127))


@given(MIXED | LONG | ASCII)
def test_texts_are_normalised_and_cut_as_the_specification_says(text: str) -> None:
    """By tables, where the specification asks the standard library for each character."""
    clean = normalise(text)
    assert clean == reference(text) == plain_fingerprint.normalise(text)
    assert [word.decode() for word in words(clean)] == plain_fingerprint.words(clean)
    tokens = [token.decode() for token in segment(clean, "rjieba")]
    assert sorted(tokens) == sorted(plain_fingerprint.tokens(clean))
    assert [unit.decode() for unit in units(clean)] == plain_fingerprint.units(clean)


def test_every_code_point_is_normalised_as_the_standard_library_does() -> None:
    """Those that the table has, many in a text; for any other the whole text is left to the library."""
    table = mapping().table
    points = [point for point in range(0x80, 0x3_1000) if table[min(point, len(table) - 1)] <= DROPPED]
    assert len(points) > 150_000
    for first in range(0, len(points), 64):
        text = "界".join(map(chr, points[first : first + 64]))
        assert normalise(text) == reference(text), hex(points[first])


@given(st.lists(MIXED, max_size=5))
def test_pieces_of_a_batch_are_the_tokens_of_each_text(texts: list[str]) -> None:
    clean = [normalise(text) for text in texts]
    points = points_of(clean)
    found = pieces(points, "rjieba")
    for i, text in enumerate(clean):
        tokens = segment(text, "rjieba")
        own = slice(found.token_bounds[i], found.token_bounds[i + 1])
        ranges = zip(found.starts[own].tolist(), found.ends[own].tolist(), strict=True)
        assert sorted(said(points, *ends) for ends in ranges) == sorted(token.decode() for token in tokens)
        own = slice(found.unit_bounds[i], found.unit_bounds[i + 1])
        ranges = zip(found.unit_starts[own].tolist(), found.unit_ends[own].tolist(), strict=True)
        assert [said(points, *ends) for ends in ranges] == [unit.decode() for unit in units(text)]


@pytest.mark.parametrize("at_once", [normalise_compiled._SLICE, 5])
@given(st.lists(MIXED | LONG, max_size=5))
def test_texts_normalised_together_or_in_slices_are_those_of_the_standard_library(
    at_once: int, texts: list[str]
) -> None:
    with patch.object(normalise_compiled, "_SLICE", at_once):
        found = normalised_points(texts)
    expected = [reference(text) for text in texts]
    assert [bytes(content) for content in encoded(found)] == [text.encode() for text in expected]
    plain = points_of(expected)
    assert found.points.tolist() == plain.points.tolist()
    assert found.bounds.tolist() == plain.bounds.tolist()


def test_every_code_point_is_normalised_in_a_batch_as_the_standard_library_does() -> None:
    every = [f"é{chr(point)}e가" for point in range(0x31000)]
    found = normalised_points(every)
    assert [bytes(content).decode() for content in encoded(found)] == list(map(reference, every))


def said(texts: Points, start: int, end: int) -> str:
    return "".join(map(chr, texts.points[start:end].tolist()))


@given(st.lists(MIXED | LONG, max_size=6))
def test_a_batch_changes_no_fingerprint(texts: list[str]) -> None:
    fingerprinter = PageFingerprinter()
    assert fingerprinter.texts(texts) == [fingerprinter.text(text) for text in texts]


@given(
    st.text()
    | st.from_regex(r"https?://[^\s]*")
    | st.from_regex(r"https?://a\.com/[?&=#!/ab%\\]*(utm_a)?[?&=#!/ab%\\]*", fullmatch=True),
    st.sets(st.sampled_from(URL_RULES)),
)
def test_a_url_key_is_its_own_key(url: str, names: set[str]) -> None:
    rules = url_rules(",".join(names))
    try:
        key = url_key(url, rules)
    except PageError:
        return
    assert url_key(key, rules) == key


@given(st.lists(st.sampled_from(["one", "two", "three", "four", "五", "六六"]), max_size=30), st.data())
def test_order_of_words_changes_no_bit_of_the_fingerprint(parts: list[str], data: st.DataObject) -> None:
    shuffled = data.draw(st.permutations(parts))
    one, two = (PageFingerprinter().text(", ".join(x)) for x in (parts, shuffled))
    assert (one.fingerprint, one.tokens) == (two.fingerprint, two.tokens)


@pytest.mark.parametrize(
    "options",
    [
        {"features": "ngrams", "hash": "sha1", "width": 128},
        {"features": "shingles", "weights": "log", "hash": "jenkins"},
        {"features": "tfidf", "weights": "score", "keyword_every": 3},
        {"features": "textrank", "weights": "score", "ties": "one"},
        {"features": "sentences", "hash": "murmur3", "width": 32},
        {"stop_words": "en,zh,ja,th", "stem": "english", "weights": "tfidf", "weight_cap": 3},
        {"han_variants": "folded", "hash": "fnv1a", "width": 128, "segmenter": "jieba"},
    ],
    ids=lambda options: " ".join(map(str, options.values())),
)
@settings(max_examples=40, deadline=None)
@given(text=MIXED | LONG)
def test_no_text_raises_by_any_method(options: dict[str, object], text: str) -> None:
    scheme = Scheme.of(options)
    found = _fingerprinter(scheme).text(text)
    assert 0 <= found.fingerprint < 2**scheme.width
    assert len(found.sketch) == scheme.sketch_bytes
    assert found.features or found.fingerprint == scheme.tie_word


@functools.cache
def _fingerprinter(scheme: Scheme) -> PageFingerprinter:
    return PageFingerprinter(scheme)
