"""Ids of pages: published and packed."""

from __future__ import annotations

import pytest

from stream.judge.ids import INDEX_MASK, OFFSET_BITS, pack, parse, show

JOURNAL = "9f576ade" + "0" * 24


@pytest.mark.parametrize("page", [(0, 0), (0, INDEX_MASK), (1, 10), (2**OFFSET_BITS - 1, INDEX_MASK)])
def test_a_published_id_is_read_as_it_was_shown(page: tuple[int, int]) -> None:
    packed = pack(*page)
    assert packed < 2**63
    assert parse(show(JOURNAL, packed)) == (JOURNAL[:8], packed)


@pytest.mark.parametrize(
    "text",
    [
        "", "9f576ade", "9f576ade.1", "9f576ade.1.2.3", "9f576ade.1.-2", "9f576ade.01.2", "9f576ade.1.02",
        "9F576ADE.1.2", "9f576ad.1.2", "9f576ade.1.2 ", "9f576ade.1.2\n", "9f576ade.\u0661.2",
        "9f576ade.1.65536", f"9f576ade.{2**OFFSET_BITS}.0", "9f576ade.999999999999999.0",
        f"9f576ade.{'9' * 5000}.0",
    ],
)  # fmt: skip
def test_what_no_page_has_as_its_id_is_none(text: str) -> None:
    assert parse(text) is None
