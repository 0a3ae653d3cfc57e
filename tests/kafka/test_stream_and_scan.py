"""A stream's verdicts are those of a scan of its pages in order, and so those of rows (tests/engines)."""

from __future__ import annotations

from pathlib import Path

import pytest

from stream.roles.judge.role import JudgeRole
from stream.roles.worker.role import WorkerRole
from stream.settings import Settings
from tests.commands import neardup_process
from tests.engines.corpus import COUNT, corpus
from tests.kafka.judge_helpers import audited, verdicts
from tests.kafka.worker_helpers import create, publish, running
from tests.unit.test_scan_rows import lines
from tests.verdict_projection import projection

pytestmark = pytest.mark.broker


async def test_a_stream_gives_the_verdicts_of_a_scan_of_its_pages(settings: Settings, tmp_path: Path) -> None:
    pages, output = corpus(tmp_path).sorted_pages, tmp_path / "of-pages"
    code, _, error = await neardup_process(settings, "scan", str(pages), "-o", str(output))
    assert code == 0, error
    await create(settings)
    await publish(settings, pages.read_bytes().splitlines())
    async with running(WorkerRole(settings)), running(JudgeRole(settings)):
        await audited(settings, COUNT)
    assert projection(await verdicts(settings)) == projection(lines(output))
