"""Restores an empty state directory from the newest checkpoint that fits the topics and this program."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Collection
from pathlib import Path

import structlog

from stream.checkpoints.catalogue import Catalogue
from stream.checkpoints.known_damage import known_damage
from stream.checkpoints.manifest import CheckpointName, Manifest
from stream.checkpoints.restoring import is_empty, restore
from stream.errors import DamagedCheckpointError, StateError
from stream.futures import retrieved
from stream.judge import meta
from stream.kafka.in_flight import in_thread
from stream.kafka.names import TopicNames
from stream.kafka.outage import retry_until_answered
from stream.kafka.positions_in_topics import Position, misfit
from stream.kafka.reader import TopicReader, journal_reader
from stream.messages.journal import Genesis
from stream.settings import Settings

log = structlog.get_logger(__name__)


async def restore_if_empty(
    settings: Settings,
    genesis: Genesis,
    cluster_id: str,
    directory: Path,
    avoided: Collection[CheckpointName] = (),
) -> CheckpointName | None:
    """Restore an empty or missing state directory, if the setting `checkpoints` names a store. Returns what
    was restored; None if the state must be built from the topics.

    A checkpoint that does not fit or is damaged is named in the log, and the next older one is tried;
    `avoided` ones are not. Raises StateError if none is left and the topics do not have everything any more,
    and CheckpointError if the store fails.
    """
    if not settings.checkpoints or not is_empty(directory):
        return None
    catalogue = Catalogue(settings.checkpoints)
    names = [each for each in await in_thread(catalogue.kept, genesis.journal) if each not in avoided]
    damaged, refused = known_damage(directory), []
    async with (
        journal_reader(settings, 0, genesis) as journal,
        TopicReader(settings, TopicNames(settings.namespace).decisions, 0) as decisions,
    ):
        for name in names:
            try:
                manifest = await in_thread(catalogue.read, name)
                reason = misfit_of_program(manifest, genesis, cluster_id)
                if reason is None and manifest.generation != settings.tables_generation:
                    reason = (
                        f"has generation {manifest.generation}, but {settings.tables_generation} is needed"
                    )
                if bad := [each.name for each in manifest.files if each.digest in damaged]:
                    reason = f"has {bad[0]} as it was when it was found damaged"
                if reason is None:
                    position = Position(manifest.applied, bytes.fromhex(manifest.last), manifest.decided)
                    reason = await misfit(position, settings, genesis, journal, decisions)
                if reason is None:
                    await _restore(catalogue, manifest, directory)
                    return name
                reason = f"checkpoint {name}: {reason}"
            except (DamagedCheckpointError, StateError) as error:
                reason = str(error)
            log.warning("checkpoint_refused", checkpoint=str(name), reason=reason)
            refused.append(reason)
        first, _ = await retry_until_answered(f"topic {decisions.topic}", decisions.bounds)
    if first:
        raise StateError(
            f"state directory {directory}: empty, but decisions start at {first}, and no checkpoint in "
            f"{catalogue} can be used: {'; '.join(refused) or 'there is none of this journal'}"
        )
    log.info("no_checkpoint", checkpoints=str(catalogue), journal=genesis.journal)
    return None


def misfit_of_program(manifest: Manifest, genesis: Genesis, cluster_id: str) -> str | None:
    """Return why this program cannot go on from a checkpoint, whatever its settings are, or None."""
    for name, value in (
        ("format", meta.VERSION),
        ("cluster", cluster_id),
        ("journal", genesis.journal),
        ("scheme", genesis.scheme_id),
        ("options", genesis.options.id),
    ):
        if getattr(manifest, name) != value:
            return f"has {name} {getattr(manifest, name)}, but {value} is needed"
    return None


class _StoppedError(Exception):
    """The restore was cancelled."""


async def _restore(catalogue: Catalogue, manifest: Manifest, directory: Path) -> None:
    """Restore in a thread, which ends on cancellation after the files that it is at."""
    began, stopped = time.monotonic(), threading.Event()
    fields = {"checkpoint": str(manifest.name), "made": manifest.made, "bytes": manifest.bytes}
    log.info("restoring", directory=str(directory), **fields)

    def stop_if_cancelled(_: int) -> None:
        if stopped.is_set():
            raise _StoppedError

    running = retrieved(
        asyncio.ensure_future(asyncio.to_thread(restore, catalogue, manifest, directory, stop_if_cancelled))
    )
    try:
        await asyncio.shield(running)
    finally:
        stopped.set()
        await asyncio.wait([running])
    log.info("restored", seconds=round(time.monotonic() - began, 1), **fields)
