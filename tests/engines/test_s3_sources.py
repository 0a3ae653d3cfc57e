"""Sources and rows in an S3 store: read, written, resumed; what is denied, missing or cut off is named."""

from __future__ import annotations

import asyncio
import gzip
import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

import pytest
from pyarrow import fs

from stream.errors import PageError, RowsError, SettingsError
from stream.local.index import RUN
from stream.roles.judge.role import JudgeRole
from stream.settings import Settings
from stream.sources.rows import RowsSource
from tests import kills
from tests.commands import neardup, succeeded
from tests.engines.conftest import S3_PYTHON
from tests.engines.corpus import Corpus, Expected, rows, verdicts_on
from tests.kafka.judge_helpers import text, verdicts
from tests.kafka.worker_helpers import create, running
from tests.unit.test_rows import directory, fingerprint_batch, jsonl, table
from tests.unit.test_scan_rows import lines, scan
from tests.verdict_projection import projection

KEY, SECRET = "an-id-that-nobody-may-see", "a-secret-that-nobody-may-see"


@pytest.fixture(scope="module")
def store() -> Iterator[fs.S3FileSystem]:
    """A store on loopback, which the environment names."""
    server = subprocess.Popen(
        [S3_PYTHON, Path(__file__).with_name("s3_server.py")], stdout=subprocess.PIPE, text=True
    )
    assert server.stdout
    with pytest.MonkeyPatch.context() as patch:
        for name in [name for name in os.environ if name.startswith("AWS_")]:
            patch.delenv(name)
        endpoint = f"http://127.0.0.1:{server.stdout.readline().strip()}"
        patch.setenv("AWS_ENDPOINT_URL", endpoint)
        patch.setenv("AWS_ACCESS_KEY_ID", KEY)
        patch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
        patch.setenv("AWS_EC2_METADATA_DISABLED", "true")
        made = fs.S3FileSystem(endpoint_override=endpoint, allow_bucket_creation=True)
        made.create_dir("crawl")
        yield made
    server.terminate()
    server.communicate()


def put(store: fs.S3FileSystem, path: str, content: bytes) -> str:
    """Write an object; its URL."""
    with store.open_output_stream(path, compression=None) as file:
        file.write(content)
    return f"s3://{path}"


def test_rows_of_objects_are_those_of_files(
    store: fs.S3FileSystem, made: Corpus, one_machine: Expected, tmp_path: Path
) -> None:
    for path in made.files:
        put(store, f"crawl/pages/{path.name}", path.read_bytes())
    command = ("fingerprint", "s3://crawl/pages", "--order", "fetched_at", "--worker-processes", "1")
    made_rows = ("-o", "s3://crawl/rows", "--pages-per-file", "250")
    neardup(*command, *made_rows)
    found = rows("s3://crawl/rows")
    assert [each.row for each in found] == [each.row for each in one_machine.rows]
    assert {each.place.source for each in found} == {f"s3://crawl/pages/{path.name}" for path in made.files}
    assert verdicts_on("s3://crawl/rows", tmp_path) == one_machine.verdicts
    store.delete_file("crawl/rows/_neardup_rows.json")
    store.delete_file("crawl/rows/rows-000001.parquet")
    with pytest.raises(RowsError, match=r"s3://crawl/rows: no _neardup_rows\.json, so they are not complete"):
        scan("s3://crawl/rows")
    with pytest.raises(RowsError, match=r"s3://nowhere/rows: no such bucket, or empty"):
        RowsSource("s3://nowhere/rows")
    store.delete_file("crawl/rows/rows-000002.parquet")
    assert "250 of them from before" in neardup(*command, *made_rows).stderr
    assert rows("s3://crawl/rows") == found
    put(store, "crawl/rows/rows-000002.parquet", b"PAR1")
    with pytest.raises(RowsError, match=r"s3://crawl/rows/rows-000002\.parquet: damaged, has 4 bytes"):
        scan("s3://crawl/rows")


@pytest.mark.broker
async def test_rows_are_loaded_from_objects(
    store: fs.S3FileSystem, settings: Settings, tmp_path: Path
) -> None:
    rows = directory(tmp_path / "rows", fingerprint_batch(table(700)))
    for path in rows.iterdir():
        put(store, f"crawl/loaded/{path.name}", path.read_bytes())
    await create(settings)
    async with running(JudgeRole(settings)):
        for command in (("load", "s3://crawl/loaded"), ("audit", "--rows", "s3://crawl/loaded")):
            await succeeded(settings, *command)
    assert projection(await verdicts(settings)) == await asyncio.to_thread(verdicts_on, rows, tmp_path)


def test_json_lines_and_archives_are_read_from_objects(store: fs.S3FileSystem, tmp_path: Path) -> None:
    page = jsonl(tmp_path / "pages.jsonl", 40)
    body = (
        b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\n\r\n<p>An archived page with a few words in it.</p>"
    )
    head = f"WARC/1.0\r\nWARC-Type: response\r\nWARC-Target-URI: http://a.example/\r\n\
Content-Type: application/http; msgtype=response\r\nContent-Length: {len(body)}\r\n\r\n".encode()
    names = {
        "pages.jsonl.gz": gzip.compress(page.read_bytes()),
        "pages.warc.gz": gzip.compress(head + body + b"\r\n\r\n"),
    }
    for name, content in names.items():
        (tmp_path / name).write_bytes(content)
        url = put(store, f"crawl/{name}", content)
        scan(tmp_path / name, "-o", tmp_path / "file")
        scan(url, "-o", tmp_path / "object")
        fields = ("url", "verdict", "reason", "fingerprint", "text_hash")
        told = [
            [[line[field] for field in fields] for line in lines(tmp_path / each)]
            for each in ("file", "object")
        ]
        assert told[0] == told[1] != []


@pytest.mark.parametrize("failpoint", ["dedup.copied", "dedup.copied:2", "dedup.written"])
def test_shards_are_deduplicated_from_and_to_a_bucket(
    failpoint: str, store: fs.S3FileSystem, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A killed run goes on behind the objects that it has uploaded, and what it writes is what files get."""
    root, dump = f"crawl/{failpoint}".replace(":", "-"), tmp_path / "dump"
    noise = os.urandom(9 << 20).hex()  # several requests
    for number, name in enumerate(("one.jsonl", "more/two.jsonl.gz", "more/three.jsonl")):
        made = [{"url": f"https://{number}.example/{n}", "text": text(n)} for n in range(40)]
        made[0]["noise"] = noise if number == 0 else ""
        content = b"".join(json.dumps(each).encode() + b"\n" for each in made)
        (dump / name).parent.mkdir(parents=True, exist_ok=True)
        (dump / name).write_bytes(gzip.compress(content) if name.endswith("gz") else content)
        put(store, f"{root}/dump/{name}", (dump / name).read_bytes())
    neardup("dedup", dump, "-o", tmp_path / "kept")
    command = ("dedup", f"s3://{root}/dump", "-o", f"s3://{root}/kept", "--index", tmp_path / "index")
    kills.killed(failpoint, kills.command, {}, *command)

    def there() -> dict[str, Any]:
        found = store.get_file_info(fs.FileSelector(f"{root}/kept", recursive=True, allow_not_found=True))
        return {each.path.partition("/kept/")[2]: each.mtime_ns for each in found if each.is_file}

    before = there()
    assert len(before) == {"dedup.copied": 1, "dedup.copied:2": 2, "dedup.written": 3}[failpoint]
    assert neardup(*command).exit_code == 0
    after = there()
    assert after.items() >= before.items()
    for name in after:
        with store.open_input_stream(f"{root}/kept/{name}", compression=None) as file:
            assert file.read() == (tmp_path / "kept" / name).read_bytes()
    assert len(after) == len([each for each in (tmp_path / "kept").rglob("*") if each.is_file()]) == 3
    if failpoint != "dedup.copied":
        return
    for arguments, said in (
        ((*command[:4], "--index", tmp_path / "other"), r"/kept: is not empty; name a new prefix"),
        ((*command[:3], f"s3://{root}/dump/kept"), r"/dump/kept: would change"),
        ((*command[:3], f"s3://{root}/new/", "--dropped", f"s3://{root}/dump/x"), r"dump/x: would change"),
        ((*command[:3], f"s3://{root}/new/", "--dropped", f"s3://{root}/new/x"), r"new/x: would change"),
        ((*command[:3], "s3://nowhere/kept"), r"output s3://nowhere/kept: no such bucket"),
    ):
        with pytest.raises(SettingsError, match=said):
            neardup(*arguments)


def test_a_prefix_belongs_to_the_run_that_found_it_empty(store: fs.S3FileSystem, tmp_path: Path) -> None:
    """Killed before it noted an object, it goes on; another run of the same index is refused before it reads,
    also for a single shard; its own objects do not count if another choice is made."""
    months = []
    for month in range(2):
        made = [{"url": f"https://{month}.example/{n}", "text": text(100 * month + n)} for n in range(9)]
        content = b"".join(json.dumps(each).encode() + b"\n" for each in made)
        months.append(put(store, f"crawl/owned/{month}/one.jsonl", content).rpartition("/")[0])
    index = ("--index", tmp_path / "index")
    command = ("dedup", months[0], "-o", "s3://crawl/owned/kept", *index)
    kills.killed("dedup.copied", kills.command, {}, *command)
    (noted,) = (tmp_path / "index" / RUN).rglob("uploaded-*.jsonl")
    noted.write_bytes(noted.read_bytes()[:9])
    assert neardup(*command).exit_code == 0
    for other in ((months[1],), (months[0], "--keep", "longest")):
        with pytest.raises(SettingsError, match=r"s3://crawl/owned/kept: is not empty; name a new prefix"):
            neardup("dedup", *other, "-o", "s3://crawl/owned/kept", *index)
    one, dropped = "s3://crawl/owned/kept-1.jsonl", "s3://crawl/owned/dropped/1.csv.gz"
    assert neardup("dedup", months[1], "-o", one, "--dropped", dropped, *index).exit_code == 0
    with store.open_input_stream(one.removeprefix("s3://"), compression=None) as file:
        assert len(file.read().splitlines()) == 9
    with store.open_input_stream(dropped.removeprefix("s3://"), compression=None) as file:
        assert gzip.decompress(file.read()).startswith(b'"url","origin_file"')


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("s3://nowhere/pages.jsonl", "s3://nowhere/pages.jsonl: no such"),
        ("s3://crawl/missing.jsonl", "s3://crawl/missing.jsonl: no such object, and none below it"),
        ("s3://crawl/forbidden/pages.jsonl", "forbidden/pages.jsonl: access denied to these credentials"),
        ("s3://id:word@crawl/pages", r"^s3://\.\.\.: has credentials in it"),
        ("ftp://crawl/pages", "the only URLs are such as s3://bucket/key"),
    ],
)
def test_what_cannot_be_read_is_named(store: fs.S3FileSystem, url: str, said: str) -> None:
    for arguments in (("scan", url), ("fingerprint", url)):
        with pytest.raises(SettingsError, match=said) as error:
            neardup(*arguments)
        assert not any(secret in str(error.value) for secret in (KEY, SECRET, "word"))


def test_a_key_with_two_slashes_in_a_row_is_named(store: fs.S3FileSystem, tmp_path: Path) -> None:
    """obstore neither lists nor reads such a key."""
    key = f"{os.environ['AWS_ENDPOINT_URL']}/crawl/doubled//pages.jsonl"
    urlopen(Request(key, jsonl(tmp_path / "pages.jsonl", 10).read_bytes(), method="PUT"))  # noqa: S310
    for url in ("s3://crawl/doubled//pages.jsonl", "s3://crawl/doubled"):
        with pytest.raises(
            SettingsError, match=r"source s3://crawl/doubled.*: two slashes in a row in the key"
        ):
            scan(url)
    with pytest.raises(SettingsError, match="output s3://crawl/doubled//rows: two slashes in a row"):
        neardup("fingerprint", tmp_path / "pages.jsonl", "-o", "s3://crawl/doubled//rows")


def test_rows_are_not_written_where_that_is_denied(store: fs.S3FileSystem, tmp_path: Path) -> None:
    pages = jsonl(tmp_path / "pages.jsonl", 10)
    for output in ("s3://nowhere/rows", "s3://crawl/forbidden/rows"):
        with pytest.raises(SettingsError, match=f"output {output}: (no such bucket|access denied)"):
            neardup("fingerprint", pages, "-o", output, "--worker-processes", "1")


def test_a_connection_that_is_cut_is_an_error_at_that_page(store: fs.S3FileSystem, tmp_path: Path) -> None:
    page = jsonl(tmp_path / "pages.jsonl", 40).read_bytes()
    url = put(store, "crawl/cut.jsonl", page)
    with pytest.raises(
        PageError, match=r"damaged_source: s3://crawl/cut\.jsonl after line \d+: .*closed the conn"
    ):
        scan(url)
