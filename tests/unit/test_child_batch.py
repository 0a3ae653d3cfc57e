"""A child that fingerprints pages in batches gives the same rows as one by one."""

from __future__ import annotations

import json
import signal
from typing import cast

from stream.children import child
from stream.children.child import BatchFingerprinter, FingerprintRequest
from stream.children.guard import Guard
from stream.children.position import Position
from stream.fingerprint.row import Row
from stream.page_rows.page_fingerprinter import PageFingerprinter, ReadPage
from stream.pages.outside.outside import Outside

OUTSIDE = Outside()


class Outbox:
    pause = 0.02

    def __init__(self) -> None:
        self.rows: list[Row] = []

    def add(self, row: Row) -> None:
        self.rows.append(row)

    def flush(self) -> None:
        pass


class Choosy(PageFingerprinter):
    """Raises on batches that contain a page marked for it."""

    def rows(self, pages: list[ReadPage]) -> list[Row]:  # type: ignore[override]
        if any("fail" in page.text for page in pages):
            raise ValueError("on purpose")
        return super().rows(pages)


def answers(values: list[bytes | None], careful: bool, fingerprinter: PageFingerprinter) -> list[Row]:
    outbox = Outbox()
    position = Position()
    guard = Guard(60, 1 << 20, position)
    child._answer(
        FingerprintRequest(values, careful), fingerprinter, guard, cast(child._Outbox, outbox), OUTSIDE
    )
    assert signal.getitimer(signal.ITIMER_PROF) == signal.getitimer(signal.ITIMER_REAL) == (0, 0)
    assert not position.pages
    position.close()
    return outbox.rows


def messages(texts: list[str]) -> list[bytes | None]:
    pages = [{"url": f"http://e.com/{number}", "text": text} for number, text in enumerate(texts)]
    return [json.dumps(page).encode() for page in pages]


def test_pages_done_together_have_the_rows_of_pages_done_alone() -> None:
    values = messages([f"word {number} 我们在北京 " * 40 * (number % 3) for number in range(40)])
    values[5:7] = [None, b"{"]
    fingerprinter = PageFingerprinter()
    assert isinstance(fingerprinter, BatchFingerprinter)
    assert answers(values, False, fingerprinter) == answers(values, True, fingerprinter)


def test_a_page_that_fails_takes_no_other_with_it() -> None:
    values = messages(["one two three " * 9, "fail", "four five six " * 9])
    rows = answers(values, False, Choosy())
    assert [row.reason for row in rows] == [None, "failed", None]
    assert rows[2].url == "http://e.com/2"
