"""A stream's verdicts are those of a scan of its pages in order, and so those of rows (tests/engines)."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from stream.roles.judge.role import JudgeRole
from stream.roles.worker.role import WorkerRole
from stream.settings import Settings
from tests.commands import neardup_process, succeeded
from tests.engines.corpus import COUNT, corpus
from tests.kafka.judge_helpers import audited, text, verdicts
from tests.kafka.worker_helpers import create, publish, running
from tests.unit.test_columns import FORMATS
from tests.unit.test_scan_rows import lines
from tests.verdict_projection import projection

pytestmark = pytest.mark.broker


async def test_a_stream_gives_the_verdicts_of_a_scan_of_its_pages(settings: Settings, tmp_path: Path) -> None:
    pages, output = corpus(tmp_path).sorted_pages, tmp_path / "of-pages"
    await succeeded(settings, "scan", str(pages), "-o", str(output))
    await create(settings)
    await publish(settings, pages.read_bytes().splitlines())
    async with running(WorkerRole(settings)), running(JudgeRole(settings)):
        await audited(settings, COUNT)
    assert projection(await verdicts(settings)) == projection(lines(output))


@pytest.mark.night
async def test_published_columns_get_the_verdicts_of_a_scan_of_the_same_files(
    settings: Settings, tmp_path: Path
) -> None:
    """Of one partition, since ids have one host, and with prefixes, since each file counts from 0."""
    output = tmp_path / "of-files"
    await create(settings)
    for number, (kind, write) in enumerate(FORMATS.items()):
        path = tmp_path / f"data.{kind}"
        texts = [text(seed) for seed in (0, number, number + 1, 0)]
        write(path, [{"n": n, "raw": each} for n, each in enumerate([*texts, None, "short"])])
        columns = [str(path), "--id-column", "n", "--id-prefix", f"{kind}/", "--text-column", "raw"]
        index = ["--index", str(tmp_path / "index"), "-o", f"{output}-{kind}"]
        await succeeded(settings, "scan", *columns, *index)
        code, out, error = await neardup_process(settings, "publish", *columns, "--key", "host")
        missing = int(kind != "csv")  # where an empty cell is an empty page
        assert (code, error.count("missing_field: ")) == (0, missing), error
        assert out.startswith("published 6 pages")
    async with running(WorkerRole(settings)), running(JudgeRole(settings)):
        await audited(settings, 6 * len(FORMATS))
    scanned = [each for kind in FORMATS for each in lines(Path(f"{output}-{kind}"))]
    assert projection(await verdicts(settings)) == projection(scanned)
    assert Counter(each["verdict"] for each in scanned) == {
        "unique": 4, "duplicate": 8, "rejected": 2, "insufficient": 4,
    }  # fmt: skip
