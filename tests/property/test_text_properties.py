"""Fast paths agree with the plain definitions."""

from __future__ import annotations

import functools
import re
import unicodedata
from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stream.errors import PageError
from stream.fingerprint.row import Status
from stream.fingerprint.scheme import Scheme
from stream.fingerprint.seed import PUBLIC_SEED, hash_keys, unit_keys
from stream.fingerprint.tokens import plain_tokens
from stream.fingerprint.tokens_compiled import scanned_tokens
from stream.page_rows.page_fingerprinter import PageFingerprinter
from stream.text import normalise_compiled
from stream.text.characters import HAN, UNASSIGNED, UNSPACED, classes
from stream.text.decode import decode
from stream.text.normalise import DROPPED, mapping, normalise, reference
from stream.text.normalise_compiled import encoded, normalised_points
from stream.text.points import Points, points_of
from stream.text.segment import GRAM, pieces, segment, units, words
from stream.text.url import URL_RULES, url_key, url_rules

KEYS = hash_keys(PUBLIC_SEED), unit_keys(PUBLIC_SEED)
MIXED = st.text(
    st.one_of(
        st.characters(),
        st.sampled_from("aZ09_ -,.。，你好世界々ｶﾞがé́̂ἀﷺ각가ᄀᆨAＡⅣ\ud800\udfb7\0ไที่ខ្មែहि\u0308\u00ad\u200b"),
    )
)
LONG = st.lists(MIXED, min_size=3, max_size=12).map(("界" * 40).join)
H, U = ("".join(f"{chr(start)}-{chr(end - 1)}" for start, end in ranges) for ranges in (HAN, UNSPACED))
UNKNOWN = classes() == UNASSIGNED
NOT_YET = "".join(
    f"{chr(start)}-{chr(end - 1)}"
    for start, end in np.flatnonzero(np.diff(UNKNOWN, prepend=False, append=False)).reshape(-1, 2).tolist()
)
M = "".join(
    chr(point)
    for point in np.flatnonzero(~UNKNOWN[:0x2_0000]).tolist()
    if unicodedata.category(chr(point)) in ("Mn", "Mc")
)
W = rf"[^\W{NOT_YET}]"
WORDS = re.compile(f"{W}(?:{W}|(?<![{H}])[{M}])*")
PIECE = re.compile(
    f"(?P<han>(?:(?={W})[{H}])+)"
    f"|(?P<unspaced>(?={W})[{U}](?:(?={W}|[{M}])[{U}]|[{M}])*)"
    f"|(?P<spaced>(?![{H}{U}]){W}(?:(?![{H}{U}]){W}|(?![{U}])[{M}]|(?<![{H}])[{M}])*)"
)
UNIT = re.compile(f"[{H}]|[{U}](?:(?!{W})[{M}])*|(?:(?![{H}{U}]){W})(?:(?![{H}{U}]){W}|(?!{W})[{M}])*")


@given(st.text(st.characters(max_codepoint=127)))
def test_ascii_words_equal_the_regular_expression(text: str) -> None:
    assert [word.decode() for word in words(text)] == re.findall(r"\w+", text)


@given(MIXED)
def test_words_equal_the_regular_expression(text: str) -> None:
    clean = normalise(text)
    assert [word.decode() for word in words(clean)] == WORDS.findall(clean)


@given(MIXED | LONG)
def test_normalising_by_table_equals_the_standard_library(text: str) -> None:
    assert normalise(text) == reference(text)


def test_every_code_point_is_normalised_as_the_standard_library_does() -> None:
    """Those that the table has, many in a text; for any other the whole text is left to the library."""
    table = mapping().table
    points = [point for point in range(0x80, 0x3_1000) if table[min(point, len(table) - 1)] <= DROPPED]
    assert len(points) > 150_000
    for first in range(0, len(points), 64):
        text = "界".join(map(chr, points[first : first + 64]))
        assert normalise(text) == reference(text), hex(points[first])


@given(MIXED)
def test_tokens_are_words_with_marks_of_which_han_and_unspaced_runs_are_cut(text: str) -> None:
    clean = normalise(text)
    found_pieces = list(PIECE.finditer(clean))
    runs = [piece["han"] for piece in found_pieces if piece["han"]]
    others = [piece["spaced"] for piece in found_pieces if piece["spaced"]]
    for run in (piece["unspaced"] for piece in found_pieces if piece["unspaced"]):
        others += [run[place : place + GRAM] for place in range(max(1, len(run) - GRAM + 1))]
    tokens = segment(clean, "rjieba")
    found = [token.decode() for token in tokens]
    assert found[: len(others)] == others
    assert "".join(found[len(others) :]) == "".join(runs)
    units_ = [unit for piece in found_pieces for unit in UNIT.findall(piece[0])]
    assert [unit.decode() for unit in units(clean)] == units_


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


@given(st.lists(MIXED | LONG, max_size=5))
def test_texts_normalised_together_are_those_of_the_standard_library(texts: list[str]) -> None:
    found = normalised_points(texts)
    expected = [reference(text) for text in texts]
    assert [bytes(content) for content in encoded(found)] == [text.encode() for text in expected]
    plain = points_of(expected)
    assert found.points.tolist() == plain.points.tolist()
    assert found.bounds.tolist() == plain.bounds.tolist()


@given(MIXED)
def test_a_text_normalised_in_slices_is_that_of_the_standard_library(text: str) -> None:
    with patch.object(normalise_compiled, "_SLICE", 5):
        found = normalised_points([text])
    assert bytes(encoded(found)[0]) == reference(text).encode()


def test_every_code_point_is_normalised_in_a_batch_as_the_standard_library_does() -> None:
    every = [f"é{chr(point)}e가" for point in range(0x31000)]
    found = normalised_points(every)
    assert [bytes(content).decode() for content in encoded(found)] == list(map(reference, every))


@given(st.lists(MIXED | LONG, max_size=5))
def test_the_compiled_scan_finds_the_same_tokens(texts: list[str]) -> None:
    points = points_of([normalise(text) for text in texts])
    for one, other in zip(scanned_tokens(points, *KEYS), plain_tokens(points, *KEYS, "rjieba"), strict=True):
        assert one.tolist() == other.tolist()


def said(texts: Points, start: int, end: int) -> str:
    return "".join(map(chr, texts.points[start:end].tolist()))


@given(st.lists(MIXED | LONG, max_size=6))
def test_a_batch_changes_no_fingerprint(texts: list[str]) -> None:
    fingerprinter = PageFingerprinter()
    assert fingerprinter.texts(texts) == [fingerprinter.text(text) for text in texts]


@given(
    st.binary(),
    st.sampled_from([None, "gbk", "big5", "shift_jis", "euc-kr", "utf-8", "utf-16", "iso-2022-jp"]),
)
def test_any_bytes_decode(body: bytes, charset: str | None) -> None:
    decode(body, charset)


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


@settings(max_examples=300)
@given(
    st.binary(max_size=200)
    | st.text().map(lambda text: b'{"url":"http://e.com/","text":' + text.encode("utf-8", "replace"))
)
def test_any_message_gives_one_row(value: bytes) -> None:
    assert PageFingerprinter().message(value, 1000).status in set(Status)


@given(st.lists(st.sampled_from(["one", "two", "three", "four", "五", "六六"]), max_size=30), st.data())
def test_order_of_words_changes_no_bit_of_the_fingerprint(parts: list[str], data: st.DataObject) -> None:
    shuffled = data.draw(st.permutations(parts))
    one, two = (PageFingerprinter().text(", ".join(x)) for x in (parts, shuffled))
    assert (one.fingerprint, one.tokens) == (two.fingerprint, two.tokens)


def test_table_of_kinds_is_the_regular_expression() -> None:
    points = np.arange(0x80, 0x3_1000)
    points = points[(points < 0xD800) | (points > 0xDFFF)]
    text = " ".join(map(chr, points.tolist()))
    assert [word.decode() for word in words(text)] == WORDS.findall(text)


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
