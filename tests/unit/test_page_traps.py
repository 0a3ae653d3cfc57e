"""Rule 5: small pages crafted to take seconds or gigabytes cost no more than ordinary ones.

Tests count operations rather than measure time.
"""

from __future__ import annotations

import json
import unicodedata
from itertools import groupby
from types import SimpleNamespace

import pytest

from stream.children.child import ChildConfiguration
from stream.children.pool import ChildPool
from stream.errors import PageError
from stream.fingerprint.scheme import Scheme
from stream.fingerprint.seed import PUBLIC_SEED
from stream.pages.content import page_text
from stream.pages.content_type import MAX_CONTENT_TYPE, content_type
from stream.pages.page import Page
from stream.text import normalise as normalising
from stream.text.letters import with_same_letters
from stream.text.normalise import MAX_LIGATURES, MAX_MARKS, normalise, reference
from stream.text.normalise_compiled import encoded, normalised_points
from tests.waiting import HANG_SECONDS

BELOW, ABOVE = "\u0316", "\u0300"


@pytest.fixture
def sorted_runs(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Lengths of the runs of marks passed to the standard library."""
    runs: list[int] = []

    def spy(form: str, text: str) -> str:
        marks = (unicodedata.combining(each) > 0 for each in text)
        runs.extend(len(list(run)) for is_mark, run in groupby(marks) if is_mark)
        return unicodedata.normalize(form, text)

    spied = SimpleNamespace(**vars(unicodedata) | {"normalize": spy})
    monkeypatch.setattr(normalising, "unicodedata", spied)
    return runs


@pytest.mark.parametrize("between", ["", "\u200d"])
def test_few_marks_are_sorted_at_once(between: str, sorted_runs: list[int]) -> None:
    """The time of sorting grows with the square of a run: 100 000 of them took 10 s."""
    normalise("a" + (ABOVE + between + BELOW + between) * 50_000)
    assert max(sorted_runs) <= MAX_MARKS


@pytest.mark.parametrize("count", [1, 2, MAX_MARKS // 2])
def test_as_many_marks_as_a_text_may_have_are_sorted_as_unicode_says(count: int) -> None:
    text = "e" + (ABOVE + BELOW) * count + "x" + BELOW + ABOVE
    assert reference(text) == unicodedata.normalize("NFKC", text)


def test_runs_of_marks_are_cut_alike_in_a_batch_and_alone() -> None:
    texts = ["a" + (ABOVE + BELOW) * count + "b " * 50 for count in (1, 15, 16, 31, 200)]
    batch = normalised_points(texts)
    assert [bytes(each).decode() for each in encoded(batch)] == list(map(normalise, texts))
    assert all(len(normalise(text)) in (len(text), len(text) - 1) for text in texts), "no mark is lost"


@pytest.mark.parametrize("letter", ["\ufdfa", "\ufdfb"])
def test_letters_that_become_many_make_no_text_much_longer(letter: str) -> None:
    """A page of 16 MiB would become one of 100 million characters."""
    few, many = letter * MAX_LIGATURES, (letter + " ") * (3 * MAX_LIGATURES)
    assert normalise(few) == with_same_letters(unicodedata.normalize("NFKC", few))
    assert len(normalise(many)) < len(normalise(few)) + len(many)
    for text in (few, many):
        assert bytes(encoded(normalised_points([text]))[0]).decode() == normalise(text)


def test_no_other_letter_becomes_more_than_six() -> None:
    grown = {chr(point) for point in range(0x30000) if len(unicodedata.normalize("NFKC", chr(point))) > 6}
    assert grown == {"\ufdfa", "\ufdfb"}


def test_a_content_type_is_read_so_far() -> None:
    """A regular expression backtracked over blanks after `charset=`: 50 000 of them took minutes."""
    blanks = " " * MAX_CONTENT_TYPE
    assert content_type(f"text/html; charset={blanks}latin-1").charset is None
    with pytest.raises(PageError, match="unsupported_content"):
        page_text(Page(url="u", body=b"x", content_type=f"application/{'x' * MAX_CONTENT_TYPE}+xml"))


LARGEST = 16 << 20
GREEDY = {
    "as many elements as are parsed": "<p>x" * (LARGEST // 16) + " " * (LARGEST * 3 // 4 - 64),
    "formatting in every paragraph": "<p>" + "".join(f"<b a={n}>" for n in range(300)) + "<p>x" * 4_000_000,
    "letters that become several": "㌀ " * (LARGEST // 4 - 16),
}


@pytest.mark.night
@pytest.mark.parametrize("name", GREEDY)
async def test_the_largest_page_fits_into_what_the_manifests_give_a_child(name: str) -> None:
    message = json.dumps({"url": "http://a/", "html": GREEDY[name]}, ensure_ascii=False).encode()
    assert LARGEST * 0.9 < len(message) <= LARGEST
    configuration = ChildConfiguration(
        scheme=Scheme(), seed=PUBLIC_SEED, page_bytes=LARGEST, memory=1536 << 20, deadline=HANG_SECONDS
    )
    async with ChildPool(1, configuration) as pool:
        (row,) = await pool.fingerprint([message])
        assert pool.crashes == 0
    assert row.reason is None
