"""Every command as a person runs it, in a process of its own, on a real broker."""

from __future__ import annotations

import asyncio
import json
import stat
from pathlib import Path

import pytest

from stream.settings import Settings
from tests.chaos.deployment import Crawler
from tests.commands import neardup_process, succeeded
from tests.waiting import until

pytestmark = pytest.mark.broker


@pytest.fixture
def crawl(tmp_path: Path) -> Path:
    crawler, path = Crawler(3), tmp_path / "crawl.jsonl"
    path.write_bytes(b"".join(crawler.page() + b"\n" for _ in range(120)))
    return path


def _write_queries(crawl: Path, url: str, path: Path) -> None:
    """The page of that URL, and one that the crawl does not hold."""
    page = next(line for line in crawl.read_bytes().splitlines() if url.encode() + b'"' in line)
    path.write_bytes(page + b'\n{"url": "http://new.example/", "text": "%b"}\n' % (b"so new a text " * 20))


async def test_the_main_job_by_commands(settings: Settings, crawl: Path, tmp_path: Path) -> None:
    code, out, advice = await neardup_process(settings, "topics", "create")
    assert (code, "mode verified" in out, "next: `neardup run`" in advice) == (0, True, True)
    out, _ = await succeeded(settings, "topics", "create")  # again, which is fine
    code, _, error = await neardup_process(settings, "topics", "create", "--option", "baselines=3")
    assert code == 2
    assert "baselines" in error

    code, out, _ = await neardup_process(settings, "publish", str(crawl))
    assert (code, "published 120 pages" in out) == (0, True)
    code, out, _ = await neardup_process(settings, "audit", "--json")
    assert code == 1, "nothing is judged yet"
    found = json.loads(out)
    assert (found["waiting"], found["missing"]) == (120, 0)

    running = asyncio.create_task(neardup_process(settings, "run", "--workers", "2"))

    async def judged() -> bool:
        assert not running.done(), running.result()
        return (await neardup_process(settings, "audit", "--json"))[0] == 0

    await until(judged)
    code, out, _ = await neardup_process(settings, "audit", "--recompute", "--json")
    found = json.loads(out)
    counts = [found[each] for each in ("pages", "missing", "repeated", "different")]
    assert (code, counts) == (0, [120, 0, 0, 0])

    code, out, _ = await neardup_process(settings, "tail", "--from-beginning", "--json", "--limit", "120")
    verdicts = [json.loads(line) for line in out.splitlines()]
    assert len({v["id"] for v in verdicts}) == 120
    code, out, _ = await neardup_process(
        settings, "tail", "--from-beginning", "--verdict", "duplicate", "--limit", "1"
    )
    assert out.startswith("duplicate")

    anchor = next(v for v in verdicts if v["verdict"] == "unique")
    asked = tmp_path / "asked.jsonl"
    _write_queries(crawl, anchor["url"], asked)
    out, _ = await succeeded(settings, "query", str(asked), "--json")
    first, second = map(json.loads, out.splitlines())
    assert first["anchors"][0]["distance"] == 0
    assert second["anchors"] == []
    code, out, _ = await neardup_process(settings, "query", str(asked))
    assert "no anchor matches" in out

    code, out, _ = await neardup_process(settings, "topics", "describe")
    rows = {cells[0]: cells for line in out.splitlines() if (cells := line.split())}
    pages, verdicts = rows[f"{settings.namespace}.pages"], rows[f"{settings.namespace}.verdicts"]
    assert (code, pages[3], verdicts[3:5]) == (0, "120", ["at", "most"])
    code, _, error = await neardup_process(settings, "topics", "create", "--partitions", "16")
    assert code == 0
    assert f"{settings.namespace}.pages keeps its 3 partitions, 16 has no effect" in error
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)


@pytest.mark.night
async def test_the_seed_of_a_journal_makes_fingerprints_comparable_with_it(
    settings: Settings, tmp_path: Path
) -> None:
    created, _ = await succeeded(settings, "topics", "create")
    file, page = tmp_path / "seed", tmp_path / "page.jsonl"
    await succeeded(settings, "topics", "seed", str(file))
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    page.write_text(json.dumps({"url": "http://example.com/", "text": "one two three"}))
    found = []
    for options in ((), ("--scheme", f"seed_file={file}")):
        out, _ = await succeeded(settings, "fingerprint", "--json", *options, str(page))
        found.append(json.loads(out))
    public, keyed = found
    assert f"scheme {keyed['scheme']}, " in created
    assert f"scheme {keyed['scheme']}, " in (await neardup_process(settings, "topics", "describe"))[1]
    assert public["scheme"] not in created
    assert public["text_hash"] != keyed["text_hash"]
    secret = file.read_text().strip()
    assert len(secret) == 32
    assert secret not in created
    file.write_text("no seed")
    code, _, error = await neardup_process(
        settings, "fingerprint", "--scheme", f"seed_file={file}", str(page)
    )
    assert code != 0
    assert f"seed_file={file}: is not 32 hexadecimal digits" in error
    assert "no seed" not in error


async def test_topics_that_are_missing_are_an_error_in_whole_lines(settings: Settings) -> None:
    code, out, _ = await neardup_process(settings, "topics", "describe")
    assert code == 1
    for name in ("pages", "journal", "decisions", "verdicts", "clusters", "rejected"):
        assert f"{settings.namespace}.{name}: is missing" in out.splitlines()
    assert "neardup topics create" in out


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (("worker", "--worker-processes", "zero"), "--worker-processes"),
        (("topics", "create", "--option", "distance"), "NAME=VALUE"),
        (("audit",), "no such topic"),
    ],
)
async def test_errors_name_what_is_wrong(settings: Settings, arguments: tuple[str, ...], named: str) -> None:
    code, _, error = await neardup_process(settings, *arguments)
    assert code == (78 if arguments[0] == "worker" else 2), "a role would be refused again"
    assert named in error
    assert "Traceback" not in error
