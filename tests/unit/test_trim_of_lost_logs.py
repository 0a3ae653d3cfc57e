"""A trim of a log that loses its end meanwhile, without a broker."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from stream.checkpoints.catalogue import Catalogue
from stream.errors import StaleError
from stream.kafka.broker_metadata import LogBounds
from stream.roles.trimmer import trim
from stream.roles.trimmer.trim import CHECKPOINT, LOGS, Hold
from stream.settings import Settings
from tests.genesis import genesis_of

SETTINGS = Settings.model_construct(namespace="crawl", bootstrap_servers="127.0.0.1:1")


@pytest.mark.parametrize("lost", ["crawl.decisions", "crawl.journal"])
async def test_a_log_that_ends_before_the_offset_holds_the_trim(
    lost: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def delete(_client: object, topic: str, before: int) -> int:
        if topic == lost:
            raise StaleError(f"topic {topic}: ends before offset {before}")
        return before

    async def nothing(*_: object) -> None:
        pass

    async def survey(_: object) -> trim._Survey:
        return trim._Survey([], [], [], [], set())

    async def bounds() -> dict[str, LogBounds]:
        return {"crawl.decisions": LogBounds(0, 50, 50), "crawl.journal": LogBounds(0, 90, 90)}

    async def point(*_: object, **__: object) -> tuple[Any, Hold]:
        return SimpleNamespace(offset=20, end=31), Hold(CHECKPOINT, "the oldest one")

    run = trim._Run(SETTINGS, genesis_of(), Catalogue(str(tmp_path)), None)  # type: ignore[arg-type]
    for name, stub in (("_bounds", bounds), ("_survey", survey), ("_point", point)):
        monkeypatch.setattr(run, name, stub)
    monkeypatch.setattr(run, "_refuse_few_replicas", nothing)
    monkeypatch.setattr(trim, "first_since", nothing)
    monkeypatch.setattr(trim, "delete_records", delete)
    outcome = await run.trim(0, dry_run=False)
    assert outcome.held.reason == LOGS
    assert outcome.held.text.startswith(f"topic {lost}: ends before offset")
    assert [each.start for each in outcome.logs] == ([0, 0] if lost == "crawl.decisions" else [20, 0])
