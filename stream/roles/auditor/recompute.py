"""Recomputes decisions from the journal, and verdicts from journal and decisions, and compares both with what
is on the topics (rule 8)."""

from __future__ import annotations

from array import array
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import aclosing, asynccontextmanager
from pathlib import Path
from typing import NamedTuple

import msgspec
import numpy as np
import xxhash
from numpy.typing import NDArray

from stream.checkpoints.manifest import Manifest
from stream.errors import SettingsError, StaleError, StateError, TrimmedLogError
from stream.judge.batch import Entry
from stream.judge.judge import Judge
from stream.judge.ledger_records import misfit_ledger
from stream.judge.log_time import binding, log_times
from stream.judge.turns import misfit_turn
from stream.kafka import broker_metadata, clients, topics
from stream.kafka.names import TopicNames
from stream.kafka.verdict_values import VerdictReader
from stream.messages.decision import Decisions, Turn, decode_decisions, encode_decisions
from stream.messages.journal import Genesis
from stream.roles.auditor.audit import GENESIS_SECONDS, AuditedVerdict, committed_records
from stream.scratch import ScratchDirectory
from stream.settings import Settings
from stream.states.follower import JudgeFollower, open_follower
from stream.states.restored import FittingCheckpoints, trimmed_logs

_SourceKey = tuple[str, int]
"""Topic id and partition of pages."""


class _Published(NamedTuple):
    """The verdicts on pages of one partition, by ascending offset of the page."""

    offset: NDArray[np.int64]
    digest: NDArray[np.uint64]
    """Digest of the verdict in JSON."""


@clients.with_translated_errors
async def recompute(
    settings: Settings,
    progress: Callable[[str, int], None] = lambda *_: None,
    report_checkpoint: Callable[[Manifest], None] = lambda _: None,
) -> list[str]:
    """Decide the journal again in a temporary state, and derive its verdicts from journal and recorded
    decisions. Returns the differences from recorded decisions, ledger records and published verdicts.

    The whole journal is decided again. If journal or decisions were trimmed, it is decided from the oldest
    checkpoint on that fits what is left, which `report_checkpoint` is called with.

    A missing or repeated verdict is no difference: `stream.roles.auditor.audit` finds those. Takes 16 bytes
    of memory for each verdict. Waits while an open transaction hides decisions. Raises SettingsError if the
    logs were trimmed and the setting `checkpoints` names no store, StateError if it has no checkpoint that
    fits, and StaleError if they were trimmed meanwhile.
    """
    names = TopicNames(settings.namespace)
    genesis = await topics.wait_for_genesis(settings, GENESIS_SECONDS)
    published = await _published(settings, names.verdicts, progress)
    differences: list[str] = []
    with ScratchDirectory("audit") as directory:
        async with _open(settings, genesis, Path(directory) / "state", report_checkpoint) as follower:
            decisions, turns = follower.decisions, _Turns(follower.judge)
            end = (await decisions.settled_bounds()).end
            while decisions.position < end:
                for record in await decisions.poll():
                    logged = decode_decisions(record.value, record.offset)
                    if (part := logged.ledger) is not None:
                        if why := misfit_ledger(logged, part, follower.state, genesis):
                            differences.append(f"decisions offset {record.offset}: the ledger record {why}")
                        continue
                    if (turn := logged.turn) is not None:
                        differences += turns.apply(logged, turn, record.offset)
                        continue
                    if not logged.has_rows:  # follows from requests, not from the journal
                        follower.judge.apply_apart(logged, record.offset)
                        continue
                    entries = await follower.journal.read_up_to(logged.end)
                    differences += turns.came_before(entries[0])
                    verdicts = follower.judge.json(entries, logged)  # refuses what does not fit
                    again = follower.judge.decide(entries, cap=logged.cap).record()
                    if encode_decisions(again) != record.value:
                        unequal = _unequal(again, logged) or ["bytes"]
                        differences.append(f"decisions offset {record.offset}: {', '.join(unequal)}")
                    differences += _differing(verdicts, published)
                    follower.judge.apply(entries, logged, record.offset + 1)
                    progress(names.journal, logged.end)
    return differences


class _Turns:
    """Recomputes turns. Their log time follows from the journal record that comes next."""

    def __init__(self, judge: Judge) -> None:
        self._judge = judge
        self._before: list[tuple[int, Decisions, int]] = []
        """Log time before each turn since the last journal record, the turn, and its offset."""

    def apply(self, record: Decisions, turn: Turn, offset: int) -> list[str]:
        """Decide a turn again, and apply it as recorded. Returns differences. Raises StateError if it does
        not follow the state."""
        state = self._judge.state
        if why := misfit_turn(record, turn, state, self._judge.genesis):
            raise StateError(f"the turn at decisions offset {offset} {why}")
        again = state.expiring(record.time)
        names = [name for name in turn.__struct_fields__ if getattr(again, name) != getattr(turn, name)]
        self._before.append((state.time, record, offset))
        self._judge.apply_apart(record, offset)
        return [f"decisions offset {offset}: the turn has other {', '.join(names)}"] if names else []

    def came_before(self, entry: Entry) -> list[str]:
        """Return which turns have another log time than this journal record, before which they stand."""
        differences = []
        for time, record, offset in self._before:
            appended = [entry.time]
            of_entry = int(log_times(time, appended, record.cap)[0]), binding(time, appended, record.cap)
            if of_entry != (record.time, record.cap):
                differences.append(
                    f"decisions offset {offset}: the turn has log time {record.time} and cap {record.cap},"
                    f" but the journal record at {entry.offset} was appended at {entry.time}"
                )
        self._before.clear()
        return differences


@asynccontextmanager
async def _open(
    settings: Settings, genesis: Genesis, directory: Path, report_checkpoint: Callable[[Manifest], None]
) -> AsyncIterator[JudgeFollower]:
    """Open a state from which all that is left of the logs can be decided again."""
    if trimmed := await trimmed_logs(settings):
        manifest = await _restore(settings, genesis, directory, trimmed)
        report_checkpoint(manifest)
        settings = settings.model_copy(update={"tables_generation": manifest.generation})
    async with open_follower(settings, genesis, directory) as follower:
        try:
            yield follower
        except TrimmedLogError as error:
            raise StaleError(f"{error}: it was trimmed while it was read; start again") from error


async def _restore(settings: Settings, genesis: Genesis, directory: Path, trimmed: str) -> Manifest:
    """Restore the oldest checkpoint from which the logs can be decided again. `trimmed` says where they
    start."""
    what = f"{trimmed}, so that decisions can only be recomputed from a checkpoint on"
    if not settings.checkpoints:
        raise SettingsError(f"checkpoints: not set, but {what}: name the store that has them")
    async with broker_metadata.connect(settings) as client:
        cluster_id = await broker_metadata.cluster_id(client)
    checkpoints = FittingCheckpoints(settings, genesis, cluster_id, any_generation=True)
    manifest = await checkpoints.restore(directory, oldest_first=True)
    if manifest is None:
        raise StateError(f"{what}, and {checkpoints.reasons}")
    return manifest


def _unequal(a: Decisions, b: Decisions) -> list[str]:
    fields = [f for f in a.__struct_fields__ if f != "codes" and getattr(a, f) != getattr(b, f)]
    return fields + [f for f in ("verdict", "change") if not np.array_equal(getattr(a, f), getattr(b, f))]


async def _published(
    settings: Settings, topic: str, progress: Callable[[str, int], None]
) -> dict[_SourceKey, _Published]:
    """Read all verdicts. A source partition's are few bytes each, in the order of its pages' offsets."""
    reader = VerdictReader(settings)
    offsets: dict[_SourceKey, array[int]] = defaultdict(lambda: array("q"))
    digests: dict[_SourceKey, array[int]] = defaultdict(lambda: array("Q"))
    async with aclosing(committed_records(settings, topic, progress)) as records:
        async for record in records:
            value = reader.json(record)
            key, offset, _ = _place(value)
            offsets[key].append(offset)
            digests[key].append(xxhash.xxh3_64_intdigest(value))
    published = {}
    for key, of_source in offsets.items():
        places = np.frombuffer(of_source, np.int64)
        order = np.argsort(places, kind="stable")
        published[key] = _Published(places[order], np.frombuffer(digests[key], np.uint64)[order])
    return published


def _differing(values: Sequence[bytes], published: dict[_SourceKey, _Published]) -> list[str]:
    """Compare verdicts with the published ones on the same pages, if there are any."""
    by_source: dict[_SourceKey, list[tuple[int, int, str]]] = defaultdict(list)
    for value in values:
        key, offset, page = _place(value)
        by_source[key].append((offset, xxhash.xxh3_64_intdigest(value), page))
    differences = []
    for key, of_source in by_source.items():
        if key not in published:
            continue
        verdicts, (offsets, digests, pages) = published[key], zip(*of_source, strict=True)
        place = np.searchsorted(verdicts.offset, offsets).clip(max=len(verdicts.offset) - 1)
        there = verdicts.offset[place] == np.array(offsets)
        different = there & (verdicts.digest[place] != np.array(digests, np.uint64))
        differences += [
            f"verdict {pages[row]}: is not what journal and decisions say"
            for row in np.flatnonzero(different).tolist()
        ]
    return differences


def _place(value: bytes) -> tuple[_SourceKey, int, str]:
    """Return the source partition and offset of a verdict's page, and the page's id."""
    verdict = _VERDICT.decode(value)
    return (verdict.source.topic_id, verdict.source.partition), verdict.source.offset, verdict.id


_VERDICT = msgspec.json.Decoder(AuditedVerdict)
