"""Times of pages: one reading of all the ways in which data sets write them."""

from __future__ import annotations

import time
from math import inf, nan
from typing import Any

import pytest

from stream.errors import PageError
from stream.pages.times import page_time, rfc3339

TIMES: list[tuple[Any, str]] = [
    ("2024-02-03T04:05:06Z", "2024-02-03T04:05:06.000Z"),
    ("2024-02-03t04:05:06.123456789z", "2024-02-03T04:05:06.123Z"),
    ("2024-02-03T04:05:06+01:00", "2024-02-03T03:05:06.000Z"),
    ("2024-02-03T04:05:06+0100", "2024-02-03T03:05:06.000Z"),
    ("2024-02-03T04:05:06", "2024-02-03T04:05:06.000Z"),
    ("2024-02-03T04:05", "2024-02-03T04:05:00.000Z"),
    ("2024-02-03", "2024-02-03T00:00:00.000Z"),
    ("20240203T040506Z", "2024-02-03T04:05:06.000Z"),
    ("2024/02/03 04:05:06", "2024-02-03T04:05:06.000Z"),
    ("2024-02-03 04:05:06.123456", "2024-02-03T04:05:06.123Z"),  # Python, PostgreSQL
    ("2024-02-03 04:05:06.123456+00:00", "2024-02-03T04:05:06.123Z"),  # pandas
    ("2024-02-03 04:05:06 UTC", "2024-02-03T04:05:06.000Z"),  # BigQuery
    ("2024-02-03 04:05:06.5 +0100 UTC", "2024-02-03T03:05:06.500Z"),  # Go
    ("Sat, 03 Feb 2024 04:05:06 GMT", "2024-02-03T04:05:06.000Z"),  # HTTP
    ("Sat, 3 Feb 2024 04:05:06 -0500", "2024-02-03T09:05:06.000Z"),  # mail
    ("Sat Feb 03 04:05:06 +0000 2024", "2024-02-03T04:05:06.000Z"),  # Twitter
    (" 1706933106123 ", "2024-02-03T04:05:06.123Z"),
    ("1706933106123.75", "2024-02-03T04:05:06.123Z"),
    ("1.706933106E12", "2024-02-03T04:05:06.000Z"),
    (1_706_933_106_123, "2024-02-03T04:05:06.123Z"),
    (1_706_933_106_123.75, "2024-02-03T04:05:06.123Z"),
    (-0.5, "1969-12-31T23:59:59.999Z"),
    (1_706_933_106, "1970-01-20T18:08:53.106Z"),  # seconds: never converted
    ("2024", "1970-01-01T00:00:02.024Z"),
]
NONE = [None, "", " ", "NaN", "nan", "NaT", "None", "null", nan]
NO_TIMES = [
    "yesterday",
    "2024-02",
    "2024-02-30",
    "2024-13-01T00:00:00Z",
    "03/02/2024",
    "9" * 30,
    "9" * 5000,
    "1e400",
    "2024-02-03T04:05:06Z and more",
    "9999-12-31T23:59:59-01:00",
    "0001-01-01T00:00:00+01:00",
    "Sat, 99 Feb 2024 04:05:06 GMT",
    "\u0661\u0662",
    inf,
    -inf,
    True,
    b"2024-02-03",
    10**30,
    -(10**30),
    [],
]


@pytest.mark.parametrize(("written", "due"), TIMES)
def test_a_time_is_read(written: Any, due: str) -> None:
    moment = page_time(written)
    assert moment is not None
    assert rfc3339(moment) == due


@pytest.mark.parametrize("written", NONE)
def test_a_missing_time_is_none(written: Any) -> None:
    assert page_time(written) is None


@pytest.mark.parametrize("written", NO_TIMES, ids=lambda each: str(each)[:20])
def test_what_is_no_time_is_of_a_wrong_type(written: Any) -> None:
    with pytest.raises(PageError, match="wrong_type: fetched_at"):
        page_time(written)


def test_the_time_zone_of_the_machine_does_not_matter(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "Asia/Kolkata")
    time.tzset()
    try:
        assert [rfc3339(page_time(written) or 0) for written, _ in TIMES] == [due for _, due in TIMES]
    finally:
        monkeypatch.undo()
        time.tzset()
