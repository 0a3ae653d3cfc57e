"""Pages through a broker have the reasons that they have in a scan, published or loaded."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
from pyarrow import parquet

from stream.roles.judge.role import JudgeRole
from stream.roles.worker.role import WorkerRole
from stream.settings import Settings
from tests.commands import succeeded
from tests.kafka.judge_helpers import audited, verdicts
from tests.kafka.worker_helpers import create, running
from tests.unit.test_ways_in import CASES, PAGE_BYTES, engine, hostile, json_lines
from tests.waiting import until

pytestmark = pytest.mark.broker


@pytest.mark.night
async def test_published_and_loaded_pages_have_the_reasons_of_a_scan(
    settings: Settings, tmp_path: Path
) -> None:
    settings = settings.model_copy(update={"page_bytes": PAGE_BYTES})
    messages = json_lines(tmp_path / "pages.jsonl", CASES)
    parquet.write_table(hostile(), tmp_path / "pages.parquet")
    due = Counter([each.reason for each in CASES] + [each.row.reason for each in engine(hostile())])
    pages = due.total()
    await create(settings)
    sources = (str(messages), str(tmp_path / "pages.parquet"))
    await succeeded(settings, "publish", *sources)

    async def judged() -> bool:
        return Counter(each["reason"] for each in await verdicts(settings)) == due

    async with running(WorkerRole(settings)), running(JudgeRole(settings)):
        assert (await audited(settings, pages)).clean
        assert await judged()
        rows = str(tmp_path / "rows")
        for command in (("fingerprint", str(messages), "-o", rows), ("load", rows)):
            await succeeded(settings, *command)
        due.update(each.reason for each in CASES)
        await until(judged)
        assert (await audited(settings, pages)).clean
