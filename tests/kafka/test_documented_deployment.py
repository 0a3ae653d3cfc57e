"""Commands that the documentation shows do what it says, on a real broker.

Those that need none are run by tests/unit/test_documented_commands.py.
"""

from __future__ import annotations

import asyncio
from functools import partial
from pathlib import Path

import pytest

from stream.brokers.local_broker import LocalBroker
from stream.roles.auditor.audit import audit
from stream.roles.judge.role import JudgeRole
from stream.roles.worker.role import WorkerRole
from stream.settings import Settings
from tests.documented import PAGES, ROOT, furnish, needs_kafka, run_page
from tests.kafka.worker_helpers import create, running
from tests.waiting import until

pytestmark = [pytest.mark.broker, pytest.mark.night]

OWN_DEPLOYMENT = [
    ROOT / "README.md",
    ROOT / "docs" / "tutorial.md",
    ROOT / "docs" / "how-to" / "run-a-deployment.md",
]
"""Pages that start roles themselves, in a namespace of their own."""
OF_A_DEPLOYMENT = [page for page in PAGES if needs_kafka(page) and page not in OWN_DEPLOYMENT]


async def clean(settings: Settings) -> bool:
    """Whether all that was published is judged, as the next guide may audit."""
    return (await audit(settings)).clean


@pytest.mark.parametrize("page", OWN_DEPLOYMENT, ids=lambda page: page.stem)
async def test_a_page_that_starts_a_deployment_does_what_it_says(
    page: Path, broker: LocalBroker, tmp_path: Path
) -> None:
    furnish(tmp_path / "sandbox")
    environment = {"NEARDUP_BOOTSTRAP_SERVERS": broker.bootstrap_servers}
    await asyncio.to_thread(run_page, page, tmp_path / "sandbox", environment)


async def test_guides_do_what_they_say_to_a_deployment_that_runs(settings: Settings, tmp_path: Path) -> None:
    """All in one deployment: each guide takes what the ones before it have left."""
    furnish(tmp_path / "sandbox")
    await create(settings)
    given = settings.environment()
    async with running(WorkerRole(settings)), running(JudgeRole(settings)):
        for page in OF_A_DEPLOYMENT:
            await asyncio.to_thread(run_page, page, tmp_path / "sandbox", given)
            await until(partial(clean, settings))
