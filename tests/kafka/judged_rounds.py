"""Deployments whose judge has judged rounds of pages, with checkpoints or without, and what came of it."""

from __future__ import annotations

import shutil
from functools import partial
from pathlib import Path
from typing import Any, Final

import msgspec
from structlog.testing import capture_logs

from stream.checkpoints.catalogue import Catalogue
from stream.checkpoints.kinds import JUDGE
from stream.checkpoints.manifest import STORED, Manifest, encode
from stream.judge.state.meta import Meta
from stream.kafka import topics
from stream.roles.auditor.recompute import recompute
from stream.roles.judge.role import JudgeRole
from stream.settings import Settings
from stream.states.follower import open_follower
from tests.kafka.judge_helpers import append, decided, once, part, places, record, verdicts
from tests.kafka.worker_helpers import running
from tests.waiting import until

ROUND: Final = 20
"""Pages of a round, which is a journal record."""


def with_checkpoints(settings: Settings, store: Path, **others: Any) -> Settings:
    """Small generations, in RocksDB, and a checkpoint whenever there is something new."""
    update = {"tables_generation": 16, "tables_memory": 0, "checkpoint_interval": 0.1, **others}
    return settings.model_copy(update={"checkpoints": str(store), **update})


def catalogue(settings: Settings) -> Catalogue:
    assert settings.checkpoints is not None
    return Catalogue(settings.checkpoints)


def kept(settings: Settings) -> list[Manifest]:
    """All checkpoints of judges, newest first."""
    found = catalogue(settings)
    return [found.read(name) for journal in found.journals() for name in found.kept(journal, JUDGE)]


def has_checkpoint(settings: Settings, applied: int, *, ledger: bool = False) -> bool:
    """Whether there is a checkpoint up to this journal offset, which names a ledger record if `ledger`."""
    return any(each.applied == applied and (each.ledger or not ledger) for each in kept(settings))


def stored(settings: Settings, name: str) -> Path:
    """The file that an object is."""
    return Path(settings.checkpoints or "") / name


def change(settings: Settings, manifest: Manifest, **fields: Any) -> None:
    """Store a manifest with other fields instead."""
    stored(settings, manifest.name.object(STORED)).write_bytes(encode(changed(manifest, **fields)))


def add(settings: Settings, manifest: Manifest, **fields: Any) -> None:
    """Store a manifest with other fields as well, as if it were of a later moment."""
    catalogue(settings).add(changed(manifest, time=manifest.time + 1, **fields))


def changed(manifest: Manifest, **fields: Any) -> Manifest:
    """A manifest with other fields, or another `applied` or `decided`."""
    offsets = dict(manifest.offsets)
    for topic, field in (("journal", "applied"), ("decisions", "decided")):
        if field in fields:
            offsets[topic] = {0: fields.pop(field)}
    return msgspec.structs.replace(manifest, offsets=offsets, **fields)


def directory(settings: Settings, role: str = "judge") -> Path:
    return settings.state_dir / settings.namespace / role


def lose(settings: Settings) -> None:
    shutil.rmtree(settings.state_dir / settings.namespace)


async def judge_rounds(
    settings: Settings, first: int, last: int, *before: bytes, ledger: bool = False
) -> None:
    """Judge rounds of pages, after other records; with a checkpoint after each, if there is a store."""
    async with running(JudgeRole(settings)):
        for number in range(first, last):
            appended = await append(settings, *(before if number == first else ()), round_of(number))
            await decided(settings, appended)
            if settings.checkpoints:
                await until(partial(has_checkpoint, settings, appended[-1].offset + 1, ledger=ledger))


def round_of(number: int) -> bytes:
    start = number * ROUND
    return record(part(0, start, start + ROUND, opening=not start))


async def deliver_again(settings: Settings, rounds: int) -> list[Any]:
    """Append all pages again and a new one, as after deleting the workers' group: the ledger must drop
    the old ones. Returns what a judge logs meanwhile."""
    with capture_logs() as logs:
        async with running(JudgeRole(settings)):
            again = [round_of(number) for number in range(rounds)]
            new = record(part(0, rounds * ROUND, rounds * ROUND + 1))
            await decided(settings, await append(settings, *again, new))
    return logs


async def all_once(settings: Settings, rounds: int) -> None:
    """Each page has one verdict, which is the one that it gets when it is judged again."""
    assert places(await verdicts(settings)) == once(part(0, 0, rounds * ROUND + 1))
    assert await recompute(settings) == []


def restored(logs: list[Any]) -> list[str]:
    return [each["checkpoint"] for each in logs if each["event"] == "restored"]


def refused(logs: list[Any]) -> list[str]:
    """Why checkpoints were not."""
    return [each["reason"] for each in logs if each["event"] == "checkpoint_refused"]


async def follow(settings: Settings, path: Path) -> tuple[Meta, str]:
    """Metadata and digest of a state, brought up to the end of the decisions."""
    genesis = await topics.wait_for_genesis(settings)
    async with open_follower(settings, genesis, path) as follower:
        await follower.follow_to_end()
        return follower.state.meta, follower.state.digest()
