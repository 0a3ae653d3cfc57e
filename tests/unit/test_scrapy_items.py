"""What a Scrapy item says is what its page message says; what cannot be said is an error that names the
field."""

from __future__ import annotations

import time
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from math import inf, isnan, nan
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from stream.errors import PageError
from stream.pages.page import decode_page
from stream.sources.encode import encode_page

scrapy = pytest.importorskip("scrapy", reason="Scrapy is not installed")

MOMENT = 1_767_323_045_006
ITEM = {"url": "http://a/", "text": "A text."}


def page_of(item: dict[str, Any]) -> Any:
    from stream.integrations.scrapy import NeardupPipeline

    crawler: Any = SimpleNamespace(settings=scrapy.settings.Settings(), stats=None)
    return NeardupPipeline(crawler).page_of(item)


@pytest.mark.parametrize(
    "moment",
    [
        MOMENT,
        "2026-01-02T03:04:05.006Z",
        "2026-01-02T05:04:05.006+02:00",
        datetime(2026, 1, 2, 3, 4, 5, 6999, UTC),
        datetime(2026, 1, 1, 22, 4, 5, 6000, timezone(timedelta(hours=-5))),
        datetime.fromtimestamp(MOMENT / 1000),  # noqa: DTZ006 (local time, as Python has it)
    ],
)
def test_a_time_in_any_form_of_a_page_message_is_taken(moment: object) -> None:
    assert page_of({**ITEM, "fetched_at": moment}).fetched_at == MOMENT


@pytest.mark.parametrize("item", [ITEM, {**ITEM, "fetched_at": None}])
def test_an_item_without_a_time_was_fetched_now(item: dict[str, Any]) -> None:
    before = int(time.time() * 1000)
    assert before <= page_of(item).fetched_at <= int(time.time() * 1000)


@pytest.mark.parametrize(
    "moment",
    [
        "yesterday", "2026-01-32", "2026-01", inf, True, 10**18,
        date(2026, 1, 2), datetime(1, 1, 1, tzinfo=timezone(timedelta(hours=14))), b"2026",
        datetime.max.replace(tzinfo=timezone(timedelta(hours=-14))),
    ],
)  # fmt: skip
def test_a_time_that_is_none_is_an_error_that_names_the_field(moment: object) -> None:
    with pytest.raises(PageError, match=r"^wrong_type: fetched_at: "):
        page_of({**ITEM, "fetched_at": moment})


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("text", b"bytes"), ("html", 3), ("body", ["a"]), ("charset", b"utf-8"), ("redirected_from", 1),
        ("canonical_url", object()), ("content_type", 7),
    ],
)  # fmt: skip
def test_a_field_of_a_wrong_type_is_an_error_that_names_it(field: str, value: object) -> None:
    """In JSON, bytes would become base64, and their page another one."""
    item = {"url": "http://a/", field: value} if field in ("html", "body") else {**ITEM, field: value}
    with pytest.raises(PageError, match=rf"^wrong_type: {field}: "):
        page_of(item)


@pytest.mark.parametrize("quality", [None, 0.5, -3, np.float32(0.5), np.int8(7), Decimal("0.1")])
def test_a_quality_is_a_number(quality: Any) -> None:
    assert page_of({**ITEM, "quality": quality}).quality == (None if quality is None else float(quality))


@pytest.mark.parametrize("quality", [True, "0.5", b"1", [1], nan, inf, np.float64("nan"), np.True_, 10**400])
def test_what_is_no_finite_number_is_no_quality_of_the_message(quality: Any) -> None:
    """Whoever reads the message is told."""
    page = page_of({**ITEM, "quality": quality})
    assert isnan(decode_page(encode_page(page), 1 << 20).quality or 0)


def test_a_content_type_may_be_the_bytes_of_a_header() -> None:
    item = {"url": "http://a/", "body": b"\xff", "content_type": b"text/html; charset=latin-1"}
    page = page_of(item)
    assert (page.body, page.content_type) == (b"\xff", "text/html; charset=latin-1")
