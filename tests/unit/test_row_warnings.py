"""What commands warn of: times in 1970, several texts of one URL, little text of large pages, and runs
without a page."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from stream.fingerprint.row import Row, Status
from stream.sources import row_warnings
from stream.sources.row_warnings import RowWarnings
from tests.commands import neardup
from tests.kafka.judge_helpers import text

pytestmark = pytest.mark.usefixtures("no_children")

URL = "http://a.example/"


def row(page: int, content: int, fetched_at: int | None = None, **fields: Any) -> Row:
    digest, text_hash = page.to_bytes(16, "little"), content.to_bytes(16, "little")
    status, url = fields.pop("status", Status.READY), fields.pop("url", f"{URL}{page}")
    return Row(status, url, fetched_at, digest, text_hash=text_hash, **fields)


def little(page: int, content: int, **fields: Any) -> Row:
    """A page of a thousand characters, of which fifty are compared."""
    return row(page, content, **{"share": 0.05, "length": 50, **fields})


@pytest.mark.parametrize(
    ("rows", "shared"),
    [
        ([row(1, 1), row(2, 2), row(1, 3)], ("page 0", "page 2")),
        ([row(1, 1, 7), row(1, 2, 7)], ("page 0", "page 1")),
        ([row(1, 1, 7), row(1, 2, 8)], None),
        ([row(1, 1), row(1, 2, 8)], None),
        ([row(1, 1), row(1, 1)], None),
        ([row(1, 1, url="id://localhost/1"), row(1, 2, url="id://localhost/1")], None),
        ([row(0, 1), row(0, 2), row(1, 0), row(1, 1)], None),
    ],
)
def test_several_texts_of_one_url_are_noticed(rows: list[Row], shared: tuple[str, str] | None) -> None:
    warnings = RowWarnings()
    for number, each in enumerate(rows):
        warnings.count(each, f"page {number}")
    assert (warnings.shared_url and warnings.shared_url[1:]) == shared


def test_urls_are_compared_in_a_sample(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(row_warnings, "SAMPLE", 8)
    warnings = RowWarnings()
    for number in range(1, 1000):
        warnings.count(row(number, 1), number)
    assert len(warnings._seen) <= 8
    for number in range(1, 1000):
        warnings.count(row(number, 2), -number)
    assert warnings.shared_url is not None


@pytest.mark.parametrize(
    ("fetched_at", "count"), [(None, 0), (-1, 0), (0, 1), (1_700_000_000, 1), (365 * 86_400_000, 0)]
)
def test_times_in_1970_are_counted(fetched_at: int | None, count: int) -> None:
    warnings = RowWarnings()
    warnings.count(row(1, 1, fetched_at), "here")
    assert warnings.in_1970 == count


@pytest.mark.parametrize(
    ("rows", "share", "little", "alike"),
    [
        ([row(1, 1), row(2, 1)], None, 0, None),
        ([row(1, 1, share=0.5, length=100), row(2, 1, share=1.0, length=100)], 2 / 3, 0, None),
        ([little(page, 1) for page in range(3)], 0.05, 3, (3, "page 0", "page 1")),
        ([little(page, page) for page in range(3)], 0.05, 3, None),
        ([little(page, 1, length=49) for page in range(3)], 0.05, 0, None),
        ([little(page, 1, share=0.1, length=100) for page in range(3)], 0.1, 0, None),
        ([little(1, 1), little(2, 2), little(3, 1)], 0.05, 3, (2, "page 0", "page 2")),
        ([little(0, 1, status=Status.INSUFFICIENT)] * 2, 0.05, 2, None),
        ([Row(Status.REJECTED, URL, None, reason="bad_url")], None, 0, None),
    ],
)  # fmt: skip
def test_large_pages_of_which_little_is_compared_are_counted(
    rows: list[Row], share: float | None, little: int, alike: tuple[int, str, str] | None
) -> None:
    warnings = RowWarnings()
    for number, each in enumerate(rows):
        warnings.count(each, f"page {number}")
    assert warnings.compared_share == (None if share is None else pytest.approx(share))
    assert warnings.little_compared == little
    assert warnings.shared_text == alike
    assert warnings.summary()["little_compared_alike"] == (alike[0] if alike else 0)


def test_the_text_of_the_most_pages_is_found_among_many_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(row_warnings, "SAMPLE", 8)
    warnings = RowWarnings()
    for number in range(1000):
        warnings.count(little(number, number if number % 3 else 7), number)
        assert len(warnings._texts) <= 8
    assert warnings.shared_text is not None
    assert 334 - 1000 / 8 <= warnings.shared_text.pages <= 334


def test_commands_warn(tmp_path: Path) -> None:
    pages = [{"url": URL, "text": text(number), "fetched_at": "1700000000"} for number in range(2)]
    (tmp_path / "pages.jsonl").write_text("".join(json.dumps(each) + "\n" for each in pages))
    one, other = (f"{tmp_path / 'pages.jsonl'} line {line}" for line in (1, 2))
    for command in (
        ("scan",),
        ("dedup", "-o", tmp_path / "kept.jsonl"),
        ("fingerprint", "-o", tmp_path / "rows"),
    ):
        said = neardup(command[0], tmp_path / "pages.jsonl", *command[1:]).stderr
        assert "2 pages with a time in 1970: numbers are milliseconds" in said
        assert f"several texts of the same URL: {URL} is {one} and {other}" in said


def test_commands_say_which_share_of_html_is_compared(tmp_path: Path) -> None:
    links = "".join(
        f"<li><a href='/{number}'>Category number {number} of many</a></li>" for number in range(80)
    )

    def page(number: int, said: str) -> dict[str, str]:
        html = (
            f"<body><nav><ul>{links}</ul></nav><main><article><h1>Ships</h1><p>{said}</p></article></main>"
            f"<footer>{links} Picture {number}</footer></body>"
        )
        return {"url": f"{URL}{number}", "html": html}

    said = "Twelve ships lie in the harbour tonight, and nobody knows where they will sail in the morning."
    pages = [
        page(1, said),
        page(2, " ".join(map(text, range(30)))),
        page(3, said),
        page(4, said),
        {"url": URL, "text": said},
    ]
    path = tmp_path / "pages.jsonl"
    path.write_text("".join(json.dumps(each) + "\n" for each in pages))
    for command in (
        ("scan",),
        ("dedup", "-o", tmp_path / "kept.jsonl"),
        ("fingerprint", "-o", tmp_path / "rows"),
    ):
        spoken = neardup(command[0], path, *command[1:]).stderr
        assert "% of the visible text of HTML pages is compared; less than a tenth of 3 large pages" in spoken
        assert f"3 of these have the same little text, such as {path} line 1 and {path} line 3:" in spoken
    found = json.loads(neardup("scan", path, "--json").stdout)
    assert (found["little_compared"], found["little_compared_alike"]) == (3, 3)
    assert 0 < found["compared_share"] < 0.5


def test_a_run_without_a_page_ends_with_1_if_something_was_passed_over(tmp_path: Path) -> None:
    (tmp_path / "site").mkdir()
    (tmp_path / "empty.jsonl").write_bytes(b"")
    commands = (("scan",), ("fingerprint",), ("dedup", "-o", tmp_path / "kept"))
    for command in commands:
        assert neardup(command[0], tmp_path / "site", *command[1:]).exit_code == 0, (
            "an empty source is no error"
        )
    (tmp_path / "site" / "a.jpg").write_bytes(b"\xff\xd8")
    for command in (*commands, ("match",), ("match", "--verified")):
        outcome = neardup(command[0], tmp_path / "site", *command[1:])
        assert outcome.exit_code == 1
        assert "passed over: 1 files without the suffix of a page that do not begin as HTML" in outcome.stderr
        assert "no page was read; records and files passed over: 1" in outcome.stderr
