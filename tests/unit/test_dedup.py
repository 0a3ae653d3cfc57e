"""`neardup dedup` keeps one page of each cluster by the rules of keep_one.sql, and writes it as it is."""

from __future__ import annotations

import bz2
import gzip
import json
import lzma
import os
import random
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import zstandard
from pyarrow import parquet

from stream.errors import SettingsError
from stream.local.index import RUN
from stream.locks import try_lock
from tests.commands import neardup
from tests.kafka.judge_helpers import text
from tests.unit.test_keep_one import keep_one

pytestmark = pytest.mark.usefixtures("no_children")

KEEPS = ("first", "longest", "newest", "quality", "hosts=c.example,b.example")

HOSTS = (".example", ".Example.", ".example:8443", ".example", ".example.:8443")


def pages(count: int, seed: int = 0) -> list[dict[str, Any]]:
    """A crawl with near-duplicates, exact copies, versions of URLs, short and bad pages, in random order."""
    rng = random.Random(seed)
    made: list[dict[str, Any]] = []
    for number in range(count):
        words = text(f"{seed} {number // 3}").split()
        host = rng.choice("abc") + HOSTS[number % len(HOSTS)]
        page: dict[str, Any] = {"url": f"https://{host}/{number}", "n": number}
        page["quality"] = rng.choice([None, 0.5, 1, 2, 3])
        page["fetched_at"] = f"2026-01-{rng.randrange(1, 28):02}T00:00:00Z"
        match rng.randrange(10):
            case 0:
                words = ["Loading"] if rng.random() < 0.5 else ["Forbidden"]
            case 1:
                del page["url"]
            case 2 | 3:
                words = [*words[:-2], "and", "another", "end", "of", "it"]
            case 4:
                page["url"] = f"https://a.example/{rng.randrange(count)}"
            case 5:
                page["url"] = f"https://a.example/{rng.randrange(count)}?utm_source=feed"
                words = text(f"{seed} other {number}").split()
            case 6:
                words = words[:-3]
            case 7:
                page["fetched_at"] = None
            case 8:
                words = words[4:]
        made.append(page | {"text": " ".join(words)})
    rng.shuffle(made)
    return made


def write(path: Path, made: Sequence[dict[str, Any]]) -> Path:
    path.write_bytes(b"".join(line_of(each) for each in made))
    return path


def line_of(page: dict[str, Any]) -> bytes:
    return json.dumps(page).encode() + b"\n"


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_bytes().splitlines()]


UNPACK: dict[str, Callable[[bytes], bytes]] = {
    ".gz": gzip.decompress,
    ".bz2": bz2.decompress,
    ".xz": lzma.decompress,
    ".zst": lambda data: zstandard.ZstdDecompressor().stream_reader(data, read_across_frames=True).read(),
}


def unpacked(path: Path) -> bytes:
    """The content of a file that is compressed as its name says."""
    return UNPACK.get(path.suffix, bytes)(path.read_bytes())


def dedup(*arguments: str | Path, code: int = 0) -> dict[str, Any]:
    """The summary of a run."""
    result = neardup("dedup", "--worker-processes", "1", "--json", *arguments)
    assert result.exit_code == code, result.output
    summary: dict[str, Any] = json.loads(result.stdout)
    assert summary["pages"] == summary["kept"] + sum(summary["dropped"].values())
    return summary


@pytest.fixture(scope="module")
def crawl(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a crawl in two files, its rows, and the verdicts on them."""
    folder = tmp_path_factory.mktemp("dedup")
    made = pages(240)
    files = [write(folder / "one.jsonl", made[:150]), write(folder / "two.jsonl", made[150:])]
    assert neardup("fingerprint", *files, "-o", folder / "rows").exit_code == 0
    assert neardup("scan", folder / "rows", "-o", folder / "verdicts.parquet").exit_code == 0
    return folder


@pytest.mark.parametrize("keep", KEEPS)
def test_the_same_pages_are_kept_and_dropped_as_by_the_sql(crawl: Path, keep: str, tmp_path: Path) -> None:
    files = [crawl / "one.jsonl", crawl / "two.jsonl"]
    report = tmp_path / "dropped.jsonl"
    summary = dedup(*files, "-o", tmp_path / "out", "--dropped", report, "--keep", keep)
    written = {(file.name, page["n"]) for file in files for page in lines(tmp_path / "out" / file.name)}
    with keep_one(keep, [crawl / "rows"], crawl / "verdicts.parquet") as database:
        kept = database.execute("SELECT source, position FROM kept").fetchall()
        dropped = database.execute(
            "SELECT source, position, why, kept_url, bits FROM dropped ORDER BY source, position"
        ).fetchall()
    stored = {str(file): lines(file) for file in files}
    assert written == {(Path(source).name, stored[source][place]["n"]) for source, place in kept}
    assert summary["dropped"] == Counter(why for _, _, why, _, _ in dropped)
    assert {"same cluster", "same short text", "old version", "rejected"} == summary["dropped"].keys()
    reported = [
        (each["origin_file"], int(each["origin_place"].removeprefix("page ")) - 1, each["why"])
        for each in lines(report)
    ]
    assert reported == [each[:3] for each in dropped]
    for each, (_, _, why, kept_url, bits) in zip(lines(report), dropped, strict=True):
        if why not in ("old version", "rejected"):
            assert (each["kept_url"], each["bits"]) == (kept_url, bits)
        elif why == "rejected":
            assert each["reason"] == "missing_field"
            assert each["kept_url"] is None
        else:
            assert each["kept_url"]


def test_the_newest_needs_a_time(tmp_path: Path) -> None:
    days = ("2026-01-01T00:00:00Z", "2026-01-03T00:00:00Z", "2026-01-02T00:00:00Z")
    made = [{"url": f"https://a.example/{day}", "text": text(1), "timestamp": day} for day in days]
    source = write(tmp_path / "pages.jsonl", made)
    newest = (source, "-o", tmp_path / "kept.jsonl", "--keep", "newest")
    with pytest.raises(SettingsError, match=r"no page has a `fetched_at`.* --fetched-at-column"):
        dedup(*newest)
    assert not (tmp_path / "kept.jsonl").exists()
    dedup(*newest, "--fetched-at-column", "timestamp")
    assert [each["timestamp"] for each in lines(tmp_path / "kept.jsonl")] == [days[1]]


def test_lines_are_written_byte_for_byte(tmp_path: Path) -> None:
    """With their spaces, escapes, unknown fields and line ends; empty lines are none."""
    some = [
        b'{ "url":"https://a.example/1",  "text": "%b", "x": [1.50, 1e3, "\\u00e9"]}\r\n' % text(1).encode(),
        b"\n",
        b'{"text": "%b", "url": "https://b.example/1"}\n' % text(1).encode(),
        b'{"url": "https://a.example/2", "text": "%b", "bytes": "\xff"}\n' % text(2).encode(),
        b'{"url": "https://a.example/3", "text": "%b"}' % text(3).encode(),
    ]
    source = tmp_path / "source.jsonl"
    source.write_bytes(b"".join(some))
    out = tmp_path / "out.jsonl"
    summary = dedup(source, "-o", out)
    assert out.read_bytes() in (some[0] + some[3] + some[4] + b"\n", some[0] + some[4] + b"\n")
    assert summary["bytes"] == out.stat().st_size


@pytest.mark.parametrize("suffix", [*UNPACK, ""])
def test_an_output_is_compressed_as_its_name_says(suffix: str, tmp_path: Path) -> None:
    made = [{"url": f"https://a.example/{n}", "text": text(n)} for n in (1, 2, 2, 3)]
    made[2]["url"] = "https://b.example/"
    source, out = tmp_path / "source.jsonl.gz", tmp_path / f"out.jsonl{suffix}"
    members = [gzip.compress(line_of(each)) for each in made]
    source.write_bytes(b"".join(members))
    dedup(source, "-o", out)
    assert unpacked(out) == b"".join(line_of(made[place]) for place in (0, 1, 3))


def test_a_json_array_and_utf_16_become_lines_in_utf_8(tmp_path: Path) -> None:
    made = [{"url": f"https://a.example/{n}", "text": f"{text(n % 2)} é"} for n in range(3)]
    (tmp_path / "array.json").write_text(json.dumps(made, indent=2))
    (tmp_path / "utf16.jsonl").write_text(
        "".join(json.dumps(each, ensure_ascii=False) + "\n" for each in made), "utf-16"
    )
    for name in ("array.json", "utf16.jsonl"):
        dedup(tmp_path / name, "-o", tmp_path / "out.jsonl")
        assert lines(tmp_path / "out.jsonl") == made[:2]


def test_rows_of_csv_are_written_as_they_are(tmp_path: Path) -> None:
    quoted = text(1).replace(" ", "\n", 3)
    rows = [
        b'\xef\xbb\xbfurl;,text,"no, te"\r\n'.replace(b";", b""),
        b'https://a.example/1,"%b","a ""b"""\r\n' % quoted.encode(),
        b",,\r\n",
        b'https://b.example/1,"%b",\r\n' % quoted.encode(),
        b"https://a.example/2,%b caf\xe9,x" % text(2).encode(),
    ]
    source, out = tmp_path / "source.csv", tmp_path / "out.csv"
    source.write_bytes(b"".join(rows) + b"\r\nhttps://a.example/3," + f"{text(3)} é é é".encode())
    dedup(source, "-o", out)
    end = b"\r\nhttps://a.example/3," + f"{text(3)} é é é".encode() + b"\r\n"
    assert out.read_bytes() == rows[0] + rows[1] + rows[4] + end


def test_parquet_keeps_columns_types_and_metadata(tmp_path: Path) -> None:
    count = 40
    numbers = list(range(count))
    columns = {
        "url": pa.array([f"https://a.example/{n}" for n in numbers]),
        "text": pa.array([text(n // 2) for n in numbers], pa.large_string()),
        "label": pa.array([None if n % 5 == 0 else "xyz"[n % 3] for n in numbers]).dictionary_encode(),
        "when": pa.array([n * 10**9 for n in numbers], pa.timestamp("us", "Europe/Paris")),
        "nested": pa.array([[{"a": n, "b": [str(n)] * (n % 3)}] * (n % 2) for n in numbers]),
        "map": pa.array([[("k", n)] for n in numbers], pa.map_(pa.string(), pa.int8())),
        "fixed": pa.array([b"%04d" % n for n in numbers], pa.binary(4)),
        "money": pa.array(numbers, pa.int32()).cast(pa.decimal128(20, 2)),
        "half": pa.array(numbers, pa.uint16()),
        "null": pa.nulls(count),
    }
    table = pa.table(columns).replace_schema_metadata({"origin": "a crawl"})
    table = table.set_column(
        8, pa.field("half", pa.uint16(), nullable=False, metadata={"u": "m"}), columns["half"]
    )
    source, out = tmp_path / "source.parquet", tmp_path / "out.parquet"
    parquet.write_table(table, source, row_group_size=17, compression="gzip")
    assert dedup(source, "-o", out)["kept"] == count // 2
    read = parquet.read_table(out)
    stored = parquet.read_table(source)
    assert read.schema.equals(stored.schema, check_metadata=True)
    assert read.equals(stored.take(list(range(0, count, 2))))
    with parquet.ParquetFile(out) as file:
        assert file.metadata.row_group(0).column(0).compression == "GZIP"
        assert file.num_row_groups == 3
    assert dedup(out, "-o", tmp_path / "again.parquet")["kept"] == count // 2


def test_rows_of_parquet_before_damage_are_copied(tmp_path: Path) -> None:
    count = 300
    columns = {"url": [f"https://a.example/{n}" for n in range(count)], "text": [*map(text, range(count))]}
    source, out = tmp_path / "source.parquet", tmp_path / "out.parquet"
    parquet.write_table(
        pa.table(columns), source, compression="none", use_dictionary=False, data_page_size=2000
    )
    stored = bytearray(source.read_bytes())
    place = stored.index(text(200).encode())
    stored[place - 4 : place] = b"\xff" * 4  # the length of the text
    source.write_bytes(stored)
    summary = dedup(source, "-o", out, code=1)
    assert 64 <= summary["kept"] == summary["pages"] < count
    assert parquet.read_table(out).to_pydict() == {
        name: values[: summary["kept"]] for name, values in columns.items()
    }


def test_a_source_without_pages_gives_an_output_without_pages(tmp_path: Path) -> None:
    schema = pa.schema({"url": pa.string(), "text": pa.string(), "x": pa.int8()})
    parquet.write_table(schema.empty_table(), tmp_path / "none.parquet")
    dedup(tmp_path / "none.parquet", "-o", tmp_path / "out.parquet")
    assert parquet.read_table(tmp_path / "out.parquet").schema == schema
    write(tmp_path / "bad.jsonl", [{"url": "", "text": "no url"}])
    summary = dedup(tmp_path / "bad.jsonl", "-o", tmp_path / "out.jsonl", code=1)
    assert summary["dropped"] == {"rejected": 1}
    assert (tmp_path / "out.jsonl").read_bytes() == b""


def test_one_dedup_at_a_time_uses_an_index(tmp_path: Path) -> None:
    source = write(tmp_path / "pages.jsonl", [{"url": "https://a.example/", "text": text("a")}])
    run = tmp_path / "index" / RUN
    run.mkdir(parents=True, mode=0o700)
    held = os.open(run, os.O_RDONLY | os.O_DIRECTORY)
    try:
        assert try_lock(held)
        with pytest.raises(SettingsError, match="another dedup uses it"):
            dedup(source, "-o", tmp_path / "out.jsonl", "--index", tmp_path / "index")
    finally:
        os.close(held)
    assert dedup(source, "-o", tmp_path / "out.jsonl", "--index", tmp_path / "index")["kept"] == 1


def test_pages_without_text_are_all_kept(tmp_path: Path) -> None:
    """They have no text in common, and what they show is not compared."""
    made = [{"url": f"https://a.example/{i}", "html": f"<p><img src='{i}.png'>"} for i in range(3)]
    made += [{"url": f"https://b.example/{i}", "html": "<p>the same few words here"} for i in range(3)]
    summary = dedup(write(tmp_path / "pages.jsonl", made), "-o", tmp_path / "out.jsonl")
    assert (summary["kept"], summary["dropped"]) == (4, {"same short text": 2})


def test_pages_with_the_same_few_words_of_content_are_kept_if_they_show_more(tmp_path: Path) -> None:
    page = (
        "<body><nav><a href='/'>Home</a></nav><article><h1>Ships</h1><p>Five ships came.</article>"
        "<form>Leave a reply on picture {} here. Your address will not be published.</form></body>"
    )
    made = [{"url": f"https://a.example/{i}", "html": page.format(i // 2)} for i in range(6)]
    summary = dedup(write(tmp_path / "pages.jsonl", made), "-o", tmp_path / "out.jsonl")
    assert (summary["kept"], summary["dropped"]) == (3, {"same short text": 3})
