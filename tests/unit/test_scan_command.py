"""What `neardup scan` reports and writes, and the limit that it judges by."""

from __future__ import annotations

import ast
import csv
import json
import re
import subprocess
import sys
from pathlib import Path

import duckdb
import pyarrow as pa
import pytest
from click.testing import Result
from jsonschema import Draft202012Validator
from pyarrow import parquet

from stream.sinks import base, sql
from stream.sinks import duckdb as duckdb_sink
from stream.sinks import parquet as parquet_sink
from tests.commands import interpreting, neardup
from tests.unit.test_explain import edited
from tests.unit.test_sources import warc_record

pytestmark = pytest.mark.usefixtures("no_children")

VERDICT_SCHEMA = Draft202012Validator(
    json.loads((Path(__file__).parents[2] / "schemas/verdict.schema.json").read_text())
)
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


@pytest.mark.parametrize("command", ["scan", "dedup"])
def test_pages_of_one_template_that_crowd_buckets_are_counted(tmp_path: Path, command: str) -> None:
    template = " ".join(f"word{i}" for i in range(300))
    with (tmp_path / "pages.jsonl").open("w") as file:
        for page in range(40):
            own = " ".join(f"own{page}x{i}" for i in range(60))
            file.write(json.dumps({"url": f"http://h.example/{page}", "text": f"{template} {own}"}) + "\n")
    crowd = ("--similarity", "0.9", "--option", "bucket_cap=4", "--option", "compared=3")
    run = [command, tmp_path / "pages.jsonl", "-o", tmp_path / "out.jsonl", "--worker-processes", "1"]
    summary = json.loads(neardup(*run, "--json", *crowd).stdout)
    assert 20 < summary["cut_lists"] <= 37
    counts = f"{max(summary['full_buckets'], summary['cut_lists'])} pages or more look like very many others"
    assert counts in neardup(*run, *crowd).stderr
    assert "very many others" not in neardup(*run, "--similarity", "0.9").stderr


@pytest.mark.parametrize("command", ["scan", "dedup", "fingerprint"])
def test_pages_whose_quality_is_no_number_are_counted(tmp_path: Path, command: str) -> None:
    with (tmp_path / "pages.jsonl").open("w") as file:
        for page, quality in enumerate([0.5, "good", True, None]):
            written = {"url": f"http://h.example/{page}", "text": f"{TEXT} {page}", "quality": quality}
            file.write(json.dumps(written) + "\n")
    for options, count in ((("--json",), 2), ((), 2), (("--json", "--quality-column", "url"), 4)):
        out = tmp_path / f"out{len(options)}"
        run = [command, tmp_path / "pages.jsonl", "-o", out, "--worker-processes", "1", *options]
        outcome = neardup(*run)
        assert outcome.exit_code == 0
        if options:
            assert json.loads(outcome.stdout)["quality_ignored"] == count
        else:
            assert f"{count} pages with a quality that is no finite number" in outcome.stderr


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


def test_every_verdict_names_the_place_of_its_page(tmp_path: Path) -> None:
    lines = [{"url": "http://a.example/1", "text": TEXT}, {"text": "no URL"}]
    jsonl, warc, saved = tmp_path / "pages.jsonl", tmp_path / "crawl.warc", tmp_path / "saved"
    jsonl.write_text("\n".join(map(json.dumps, lines)) + "\n\nno JSON\n")
    records = [warc_record(f"http://b.example/{n}", TEXT.encode()) for n in range(2)]
    warc.write_bytes(b"".join(records))
    saved.mkdir()
    page = saved / "\udcff.txt"  # not UTF-8
    page.write_text(TEXT)
    (tmp_path / "pages.csv").write_text(f"url,text\nhttp://c.example/,{TEXT}\n")
    columns = {"url": ["http://d.example/", "nowhere"], "text": [TEXT, TEXT]}
    parquet.write_table(pa.table(columns), tmp_path / "pages.parquet")
    neardup("fingerprint", "--worker-processes", "1", jsonl, warc, "-o", tmp_path / "rows")
    expected = [
        *((str(jsonl), f"line {line}") for line in (1, 2, 4)),
        *((str(warc), f"record at byte {start}") for start in (0, len(records[0]))),
        (f"{saved}/\ufffd.txt", None),
        (str(tmp_path / "pages.csv"), "line 2"),
        *((str(tmp_path / "pages.parquet"), f"row {row}") for row in (1, 2)),
        *((str(jsonl), f"page {number}") for number in (1, 2, 3)),
        *((str(warc), f"page {number}") for number in (1, 2)),
    ]
    sources = (jsonl, warc, saved, tmp_path / "pages.csv", tmp_path / "pages.parquet", tmp_path / "rows")
    scan(*sources, "-o", tmp_path / "verdicts.jsonl", "--index", tmp_path / "index")
    verdicts = list(map(json.loads, (tmp_path / "verdicts.jsonl").read_text().splitlines()))
    assert [(each["origin"]["file"], each["origin"]["place"]) for each in verdicts] == expected
    assert [each["verdict"] for each in verdicts].count("rejected") == 5
    for each in verdicts:
        VERDICT_SCHEMA.validate(each)
    scan(*sources, "-o", tmp_path / "verdicts.parquet")
    table = parquet.read_table(tmp_path / "verdicts.parquet", columns=["origin_file", "origin_place"])
    assert [tuple(row.values()) for row in table.to_pylist()] == expected


def test_a_table_of_an_earlier_version_gets_the_new_columns(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "pages.jsonl").write_text(json.dumps({"url": "http://a.example/1", "text": TEXT}))
    later = list(base.COLUMNS).index("origin_file")
    columns = dict(list(base.COLUMNS.items())[:later])
    create = sql.CREATE[0].split(", origin_file")[0] + ")"
    for name in ("verdicts.duckdb", "verdicts.parquet"):
        command = (tmp_path / "pages.jsonl", "-o", tmp_path / name, "--index", tmp_path / f"{name}.index")
        with monkeypatch.context() as earlier:
            for module in (duckdb_sink, parquet_sink):
                earlier.setattr(module, "COLUMNS", columns)
                earlier.setattr(module, "values_of", lambda row: base.values_of(row)[: len(columns)])
            earlier.setattr(sql, "CREATE", (create, sql.CREATE[1]))
            earlier.setattr(sql, "additions", lambda columns: [])
            scan(*command)
        scan(*command)
    expected = [("unique", None), ("recrawl", "line 1")]
    with duckdb.connect(str(tmp_path / "verdicts.duckdb")) as database:
        table = database.execute("SELECT verdict, origin_place FROM verdicts ORDER BY source_offset")
        assert table.fetchall() == expected
        files = database.read_parquet(f"{tmp_path}/verdicts.parquet/*.parquet", union_by_name=True)
        assert files.project("verdict, origin_place").fetchall() == expected
        assert len(database.read_parquet(f"{tmp_path}/verdicts.parquet/*.parquet").fetchall()) == 2


def test_a_rejected_page_is_named_with_what_it_lacks_and_what_it_has(tmp_path: Path) -> None:
    many = {f"field {n}": n for n in range(20)}
    pages = [
        {"url": "http://a.example/", "text": TEXT},
        {"doc_id": 7, "raw_content": TEXT, "url": None},
        {"url": "http://a.example/", **many},
        {"url": "http://a.example/", "text": TEXT, "html": TEXT},
    ]
    path = tmp_path / "pages.jsonl"
    path.write_text("".join(json.dumps(each) + "\n" for each in pages))
    outcome = scan(path)
    assert outcome.exit_code == 0
    lacking = f"missing_field: {path} line 2: `url` is missing; the page has `doc_id`, `raw_content`"
    assert lacking in outcome.stderr
    assert f"ambiguous_content: {path} line 4: html and text are set" in outcome.stderr
    assert "`neardup help reasons`" in outcome.stderr
    path.write_text("".join(json.dumps(each) + "\n" for each in pages[2:]))
    summary = json.loads(scan(path, "--json").stdout)
    assert summary["examples"]["missing_field"] == (
        f"{path} line 1: one of `html`, `text`, `body` and `warc_filename` is missing; the page has `url`, "
        + ", ".join(f"`field {n}`" for n in range(11))
        + " and 9 more"
    )
    made = neardup("fingerprint", "--worker-processes", "1", path, "-o", tmp_path / "rows", "--json")
    assert json.loads(made.stdout)["examples"] == summary["examples"]
    (shown, _) = map(json.loads, neardup("fingerprint", path, "--json").stdout.splitlines())
    assert shown["origin"] == {"file": str(path), "place": "line 1"}
    assert shown["detail"] in summary["examples"]["missing_field"]


@pytest.mark.parametrize(("topic", "listed"), [("reasons", "missing_field"), ("access", "| worker |")])
def test_what_messages_refer_to_is_printed(topic: str, listed: str) -> None:
    assert listed in neardup("help", topic).stdout


def test_no_message_refers_to_a_file_of_the_checkout() -> None:
    """Who installed with pip has none."""
    for file in (Path(__file__).parents[2] / "stream").rglob("*.py"):
        tree = ast.parse(file.read_text("utf-8"))
        docstrings = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
        for node in ast.walk(tree):
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in docstrings:
                assert not re.search(r"docs/[a-z-]+(/[a-z-]+)*\.md", node.value), f"{file}: {node.value}"


@pytest.mark.parametrize("command", ["scan", "dedup"])
def test_few_pages_are_judged_alike_without_compiling(tmp_path: Path, command: str) -> None:
    texts = [text for seed in range(4) for text in edited(seed, 120, 2, han=seed == 1)]
    pages = [{"url": f"http://{i % 6}.example/", "text": text} for i, text in enumerate(texts)]
    (tmp_path / "pages.jsonl").write_text("".join(json.dumps(page) + "\n" for page in [*pages, {"text": 3}]))
    given = (command, str(tmp_path / "pages.jsonl"), "-o")
    environment = interpreting() | {"NUMBA_CACHE_DIR": str(tmp_path / "cache")}
    subprocess.run(
        [sys.executable, "-m", "stream.cli", *given, tmp_path / "few.jsonl"], env=environment, check=True
    )
    assert not (tmp_path / "cache").exists()
    assert neardup(*given, tmp_path / "compiled.jsonl").exit_code == 0
    few, compiled = (
        re.sub(r'"[0-9a-f]{8}(?=\.\d)|"decided_at":"[^"]*"', "", (tmp_path / name).read_text())
        for name in ("few.jsonl", "compiled.jsonl")
    )
    assert few == compiled
    assert few.count("\n") == {"scan": len(texts) + 1, "dedup": 3}[command]


def verdicts_in_csv(source: Path, *arguments: str | Path) -> list[dict[str, str]]:
    output = source.with_name("verdicts.csv")
    scan(source, "-o", output, *arguments)
    with output.open(newline="") as file:
        return list(csv.DictReader(file))


def test_no_cell_of_verdicts_is_a_formula(tmp_path: Path) -> None:
    pages = [{"url": "=1+1", "text": TEXT}, {"url": "http://a.example/", "text": TEXT}]
    (tmp_path / "pages.jsonl").write_text("\n".join(map(json.dumps, pages)))
    verdicts = verdicts_in_csv(tmp_path / "pages.jsonl")
    assert [each["url"] for each in verdicts] == ["'=1+1", "http://a.example/"]


def test_similarity_is_the_limit_of_verdicts(tmp_path: Path) -> None:
    words = [f"word{number}" for number in range(200)]
    texts = [words, [*words[:190], *(f"other{number}" for number in range(10))]]
    pages = [{"url": f"http://{len(each[-1])}.example/", "text": " ".join(each)} for each in texts]
    (tmp_path / "pages.jsonl").write_text("\n".join(map(json.dumps, pages)))
    for limit, due in ((".98", "unique"), (".7", "duplicate")):
        verdicts = verdicts_in_csv(tmp_path / "pages.jsonl", "--similarity", limit)
        assert [each["verdict"] for each in verdicts] == ["unique", due]


def test_a_scan_that_goes_on_writes_csv_anew(tmp_path: Path) -> None:
    (tmp_path / "pages.jsonl").write_text(json.dumps({"url": "http://a.example/", "text": TEXT}))
    for due in ("unique", "recrawl"):
        verdicts = verdicts_in_csv(tmp_path / "pages.jsonl", "--index", tmp_path / "index")
        assert [each["verdict"] for each in verdicts] == [due]
