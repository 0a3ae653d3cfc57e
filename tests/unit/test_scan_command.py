"""`neardup scan` reports rejected pages, and records that are not pages."""

from __future__ import annotations

import json
from pathlib import Path

from click.testing import Result

from tests.commands import neardup
from tests.unit.test_sources import warc_record

TEXT = "The harbour authority will repair the old lighthouse at the north pier before the storms."


def scan(*arguments: str | Path) -> Result:
    return neardup("scan", "--worker-processes", "1", *arguments)


def test_records_that_are_no_pages_are_counted(tmp_path: Path) -> None:
    path = tmp_path / "crawl.warc"
    path.write_bytes(
        warc_record("http://a.example/1", TEXT.encode())
        + warc_record("http://a.example/gone", status="404 Not Found")
        + warc_record("http://a.example/logo.png", content_type="image/png")
    )
    (tmp_path / "saved").mkdir()
    (tmp_path / "saved/logo.png").write_bytes(b"")
    outcome = scan(path, tmp_path / "saved")
    assert outcome.exit_code == 0
    said = outcome.stderr.splitlines()[-1]
    assert said.startswith("passed over: 1 ")
    for why in ("other than 2xx", "neither HTML nor text", "without the suffix of a page"):
        assert why in said
    summary = json.loads(scan(path, "--json").stdout)
    assert (summary["pages"], summary["passed_over"]) == (1, {"http_status": 1, "content_type": 1})


def test_pages_that_are_all_rejected_are_an_error_with_reasons(tmp_path: Path) -> None:
    path, out = tmp_path / "pages.jsonl", tmp_path / "verdicts"
    path.write_text('{"link": "http://a.example/"}\n{"url": "http://a.example/"}\nno JSON\n')
    outcome = scan(path, "-o", out)
    assert outcome.exit_code == 1
    assert "rejected for missing_field (2), malformed_json (1)" in outcome.stderr
    assert len(out.read_text().splitlines()) == 3
    outcome = scan(path, "--json")
    assert (outcome.exit_code, json.loads(outcome.stdout)["reasons"]) == (
        1,
        {"missing_field": 2, "malformed_json": 1},
    )
    path.write_text(path.read_text() + json.dumps({"url": "http://a.example/", "text": TEXT}))
    outcome = scan(path)
    assert (outcome.exit_code, "rejected for missing_field (2)" in outcome.stderr) == (0, True)
