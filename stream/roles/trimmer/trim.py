"""One trim of decisions and journal, up to what kept and verified checkpoints replace (rule 13).

A ledger record in `decisions` has the progress of all sources as of a journal offset. From it on, and from
the journal record before that offset on, the logs are enough for whoever restores a judge's checkpoint that
names it or a later one. So both are trimmed to the ledger record of the judge's oldest kept checkpoint that
can be restored or, if that is younger than what is to be kept, or an elector's oldest one needs more, to an
earlier one.

Nothing is deleted unless a kept checkpoint of each kind of state, the newest if it is sound, was verified as
a whole. Whatever is uncertain holds the trim.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple

import msgspec
import structlog
from aiokafka.client import AIOKafkaClient

from stream.checkpoints.catalogue import Catalogue
from stream.checkpoints.kinds import JUDGE, is_dashboard
from stream.checkpoints.manifest import VERIFIED, Manifest, file_object
from stream.checkpoints.verification import verify_whole
from stream.errors import DamagedCheckpointError, SettingsError, StaleError, TrimmedLogError
from stream.failpoints import reach
from stream.kafka import broker_metadata, topics
from stream.kafka.broker_metadata import LogBounds
from stream.kafka.in_flight import in_stoppable_thread, in_thread
from stream.kafka.ledger_search import LedgerRecord, last_ledger, ledger_at
from stream.kafka.log_starts import delete_records, first_since
from stream.kafka.names import TopicNames
from stream.kafka.open_transactions import settled_bounds
from stream.kafka.reader import TopicReader
from stream.messages.journal import Genesis
from stream.settings import Settings
from stream.states.position import bounds_of_logs, misfit
from stream.states.restored import misfit_of_program

log = structlog.get_logger(__name__)

KEEP: Final = "keep"
"""What follows is younger than the time to keep."""
CHECKPOINT: Final = "checkpoint"
"""What follows is needed by the judge's oldest kept checkpoint."""
ELECTOR: Final = "elector"
"""What follows is needed by the oldest kept checkpoint of an elector."""
NONE: Final = "none"
"""There is no checkpoint of a kind that could replace a log."""
UNVERIFIED: Final = "unverified"
"""None of the checkpoints of a kind is verified."""
LOGS: Final = "logs"
"""A checkpoint does not fit the logs: one of them may have lost records."""
REPLICAS: Final = "replicas"
"""A topic has fewer replicas in sync than it must have."""
STORE: Final = "store"
"""The store of checkpoints fails."""
BROKERS: Final = "brokers"
"""Brokers do not answer."""
TRANSACTION: Final = "transaction"
"""An open transaction hides the end of a log."""
REASONS: Final = (KEEP, CHECKPOINT, ELECTOR, NONE, UNVERIFIED, LOGS, REPLICAS, STORE, BROKERS, TRANSACTION)
EXPECTED: Final = (KEEP, CHECKPOINT, ELECTOR)
"""Reasons that always hold a trim sooner or later. The others are problems."""

VERIFY_SECONDS: Final = 12 * 3600.0
"""Time-out of a verification. A checkpoint that is pruned meanwhile is whole for twice as long."""


class Hold(msgspec.Struct, frozen=True):
    """What keeps a log from being trimmed any further."""

    reason: str
    """One of REASONS."""
    text: str


class TrimmedLog(msgspec.Struct, frozen=True):
    """What a trim did to a topic."""

    topic: str
    before: int
    """Where its log started."""
    start: int
    """Where its log starts now; in a dry run, where it would start."""
    end: int
    oldest: int
    """When its first record was appended, in milliseconds since the epoch; 0 if there is none."""


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """What a trim did, and why not more."""

    logs: list[TrimmedLog]
    """Decisions and journal."""
    held: Hold
    verified: str | None = None
    """The judge's newest kept checkpoint that was verified."""
    verified_time: int = 0
    """When it was made, in milliseconds since the epoch."""
    unused: list[str] = []
    """Why kept checkpoints were left out that are sound, or may be."""
    damaged: list[str] = []
    """Kept checkpoints that cannot be restored, and why."""

    @property
    def has_problem(self) -> bool:
        """Whether a person should look at it."""
        return self.held.reason not in EXPECTED or bool(self.damaged)


class _HeldError(Exception):
    """Nothing may be deleted."""

    def __init__(self, reason: str, text: str) -> None:
        super().__init__(text)
        self.hold = Hold(reason, text)


class _Survey(NamedTuple):
    """The kept checkpoints."""

    usable: list[Manifest]
    """Those that could be restored, as far as it shows without reading their files; of each kind, the oldest
    first."""
    verified: list[Manifest]
    """Of these, those that were verified."""
    unused: list[str]
    damaged: list[str]
    unclear: set[str]
    """Kinds with a checkpoint that is damaged, or not for this program: somebody may need what follows it."""

    def usable_of(self, kind: str) -> list[Manifest]:
        """Those of a kind that could be restored."""
        return [each for each in self.usable if each.kind == kind]

    def is_verified(self, kind: str) -> bool:
        """Whether one of a kind was verified."""
        return any(each.kind == kind for each in self.verified)

    @property
    def kinds(self) -> list[str]:
        """The kinds of those that could be restored."""
        return sorted({each.kind for each in self.usable})


class _Limit(NamedTuple):
    """How far the logs may be trimmed."""

    hold: Hold
    decisions: int
    """The first offset of decisions that stays."""
    journal: int
    """The first offset of the journal that stays."""


_YOUNG: Final = Hold(KEEP, "what follows is younger than --keep")


def _oldest(reason: str, manifest: Manifest) -> Hold:
    return Hold(reason, f"checkpoint {manifest.name}, made {manifest.made}, is the oldest one")


def _limits_of_electors(survey: _Survey) -> Iterator[_Limit]:
    """What the oldest checkpoints of electors need."""
    for kind in survey.kinds:
        if kind != JUDGE:
            oldest = min(survey.usable_of(kind), key=lambda each: each.decided)
            yield _Limit(_oldest(ELECTOR, oldest), oldest.decided, max(0, oldest.applied - 1))


class Trimmer:
    """Trims the logs of one namespace."""

    def __init__(self, settings: Settings, keep: float) -> None:
        """Nothing is deleted that was appended within the last `keep` seconds. Raises SettingsError without a
        store of checkpoints."""
        if not settings.checkpoints:
            raise SettingsError("checkpoints: not set; logs are trimmed up to what checkpoints replace")
        self._settings, self._keep = settings, keep
        self._catalogue = Catalogue(settings.checkpoints)

    async def trim(self, genesis: Genesis, *, dry_run: bool = False) -> Outcome:
        """Trim the logs as far as they may be; with `dry_run`, delete and verify nothing.

        Raises TopicError for topics that are missing or unsound, AccessError, CheckpointError if the store
        fails, BrokerError if a broker does not answer, and DiskError.
        """
        await topics.check(self._settings, "trim")
        async with broker_metadata.connect(self._settings) as client:
            run = _Run(self._settings, genesis, self._catalogue, client)
            damaged = [] if dry_run else await run.verify_newest()
            outcome = await run.trim(int((time.time() - self._keep) * 1000), dry_run=dry_run)
            listed = {*outcome.damaged, *damaged}
            return msgspec.structs.replace(outcome, damaged=sorted(listed))


class _Run:
    """One trim."""

    def __init__(
        self, settings: Settings, genesis: Genesis, catalogue: Catalogue, client: AIOKafkaClient
    ) -> None:
        self._settings, self._genesis, self._catalogue, self._client = settings, genesis, catalogue, client
        names = TopicNames(settings.namespace)
        self._topics = (names.decisions, names.journal)
        """In the order in which they are trimmed."""

    # The checkpoints.

    async def verify_newest(self) -> list[str]:
        """Verify the newest usable checkpoint of each kind that can be verified, unless that was done.
        Returns what is wrong with newer ones."""
        try:
            survey = await self._survey(await self._bounds())
        except _HeldError:
            return []
        return [error for kind in survey.kinds for error in await self._verify_newest(survey, kind)]

    async def _verify_newest(self, survey: _Survey, kind: str) -> list[str]:
        damaged = []
        for manifest in reversed(survey.usable_of(kind)):
            if manifest in survey.verified:
                break
            try:
                await self._verify(manifest)
            except DamagedCheckpointError as error:
                log.error("checkpoint_damaged", checkpoint=str(manifest.name), error=str(error))
                damaged.append(str(error))
            else:
                await in_thread(self._catalogue.add, manifest, VERIFIED)
                break
        return damaged

    async def _verify(self, manifest: Manifest) -> None:
        """Verify in a thread, which ends soon after a cancellation."""
        began = time.monotonic()
        fields = {"checkpoint": str(manifest.name), "made": manifest.made, "bytes": manifest.bytes}
        directory = self._settings.state_dir / self._settings.namespace
        log.info("verifying", directory=str(directory), **fields)
        await in_stoppable_thread(
            lambda turn: verify_whole(self._catalogue, manifest, self._genesis, directory, turn)
        )
        if (seconds := time.monotonic() - began) > VERIFY_SECONDS:
            raise DamagedCheckpointError(
                f"checkpoint {manifest.name}: sound, but it took {seconds / 3600:.0f} h to verify: it may be"
                " pruned meanwhile, and its files go after a day"
            )
        log.info("verified", seconds=round(seconds, 1), **fields)

    async def _survey(self, bounds: Mapping[str, LogBounds]) -> _Survey:
        """Look at all kept checkpoints. Raises _HeldError if one does not fit the logs."""
        survey = _Survey([], [], [], [], set())
        decisions, journal = (bounds[topic] for topic in self._topics)
        contents = await in_thread(self._catalogue.contents, self._genesis.journal)
        cluster_id = await broker_metadata.cluster_id(self._client)
        for each, kind in contents.earlier.items():
            survey.unused.append(f"checkpoint {each}: is of an earlier version")
            survey.unclear.add(kind)
        for name in reversed([name for name in contents.kept if not is_dashboard(name.kind)]):
            try:
                manifest = await in_thread(self._catalogue.read, name)
            except DamagedCheckpointError as error:
                survey.damaged.append(str(error))
                survey.unclear.add(name.kind)
                continue
            if lacking := contents.lacking(manifest):
                there = file_object(name.journal, lacking.digest)
                survey.damaged.append(
                    f"checkpoint {name}: {lacking.name}: {there} is missing, or has another size"
                )
                survey.unclear.add(name.kind)
            elif reason := misfit_of_program(manifest, self._genesis, cluster_id):
                survey.unused.append(f"checkpoint {name}: {reason}")
                if manifest.cluster == cluster_id:  # of a mirror's logs nothing is deleted here
                    survey.unclear.add(name.kind)
            elif reason := _reason_not_to_use(manifest, decisions, journal):
                survey.unused.append(f"checkpoint {name}: {reason}")
            else:
                survey.usable.append(manifest)
                if name in contents.verified and await in_thread(self._catalogue.is_verified, manifest):
                    survey.verified.append(manifest)
        logs = await bounds_of_logs(self._settings)
        for manifest in survey.usable:  # one of the logs may have lost records, or was made anew
            if why := await misfit(manifest, logs, self._settings, self._genesis):
                raise _HeldError(LOGS, f"checkpoint {manifest.name}: {why}")
        return survey

    # The logs.

    async def trim(self, until: int, *, dry_run: bool) -> Outcome:
        """Delete what was appended before `until`, in milliseconds since the epoch, and is not needed."""
        bounds, survey = await self._bounds(), _Survey([], [], [], [], set())
        starts = [bounds[topic].start for topic in self._topics]
        try:
            await self._refuse_few_replicas()
            survey = await self._survey(bounds)
            record, hold = await self._point(survey, bounds, until, dry_run=dry_run)
        except _HeldError as error:
            record, hold = None, error.hold
        except TrimmedLogError as error:
            record, hold = None, Hold(LOGS, f"{error}: it was trimmed meanwhile")
        if record is not None:
            try:
                await self._delete(record, starts, dry_run=dry_run)
            except StaleError as error:
                hold = Hold(LOGS, str(error))
        newest = next((each for each in reversed(survey.verified) if each.kind == JUDGE), None)
        logs = []
        for topic, start in zip(self._topics, starts, strict=True):
            oldest = await first_since(self._client, topic, 0)
            before, end = bounds[topic].start, bounds[topic].end
            logs.append(TrimmedLog(topic, before, start, end, oldest.time if oldest else 0))
        return Outcome(
            logs=logs,
            held=hold,
            verified=str(newest.name) if newest else None,
            verified_time=newest.time if newest else 0,
            unused=survey.unused,
            damaged=survey.damaged,
        )

    async def _delete(self, record: LedgerRecord, starts: list[int], *, dry_run: bool) -> None:
        """Trim to a ledger record, and note in `starts` where each log starts then. Raises StaleError if a
        log ends before it."""
        # First decisions: without them nobody asks for the journal before it.
        for place, offset in enumerate((record.offset, max(0, record.end - 1))):
            if offset > starts[place]:
                if not dry_run:
                    await delete_records(self._client, self._topics[place], offset)
                    reach(_FAILPOINTS[place])
                starts[place] = offset

    async def _point(
        self, survey: _Survey, bounds: Mapping[str, LogBounds], until: int, *, dry_run: bool
    ) -> tuple[LedgerRecord | None, Hold]:
        """The ledger record to trim to, if there is one, and why not further."""
        if JUDGE not in survey.kinds:
            raise _HeldError(NONE, f"{self._catalogue} has no checkpoint of a judge that could replace a log")
        if lost := sorted(survey.unclear.difference(survey.kinds)):
            raise _HeldError(NONE, f"none of the checkpoints of {lost[0]} in {self._catalogue} can be used")
        for kind in () if dry_run else survey.kinds:
            if not survey.is_verified(kind):
                raise _HeldError(
                    UNVERIFIED, f"none of the checkpoints of {kind} in {self._catalogue} could be verified"
                )
        oldest = min(survey.usable_of(JUDGE), key=lambda each: each.ledger)
        start = bounds[self._topics[0]].start
        if oldest.ledger < start:
            raise _HeldError(
                LOGS,
                f"checkpoint {oldest.name}: names the ledger record at {oldest.ledger}, but topic"
                f" {self._topics[0]} starts at {start}: it was trimmed by hand",
            )
        limits = [await self._end_of(topic, bounds, until) for topic in self._topics]
        async with TopicReader(self._settings, self._topics[0], start) as decisions:
            record = await ledger_at(decisions, oldest.ledger)
            if record is None or record.journal != self._genesis.journal:
                raise _HeldError(
                    LOGS,
                    f"checkpoint {oldest.name}: there is no ledger record of this journal at {oldest.ledger}"
                    f" of topic {self._topics[0]}",
                )
            hold = _oldest(CHECKPOINT, oldest)
            for limit in (*_limits_of_electors(survey), _Limit(_YOUNG, *limits)):
                end = limit.decisions + 1
                while record is not None and (record.offset >= end or record.end - 1 > limit.journal):
                    hold, end = limit.hold, min(record.offset, end)
                    record = await last_ledger(decisions, start, end)
            return record, hold

    async def _end_of(self, topic: str, bounds: Mapping[str, LogBounds], until: int) -> int:
        """The offset before which all records of a topic were appended before `until`."""
        first = await first_since(self._client, topic, until)
        return bounds[topic].end if first is None else first.offset

    async def _bounds(self) -> dict[str, LogBounds]:
        by_partition = await settled_bounds(self._client, self._topics)
        return {key.topic: bounds for key, bounds in by_partition.items()}

    async def _refuse_few_replicas(self) -> None:
        """Raise _HeldError if a topic has fewer replicas in sync than it takes to write to it."""
        described = (await broker_metadata.metadata(self._client, self._topics)).topics
        configs = await broker_metadata.topic_configs(self._client, self._topics)
        for topic in self._topics:
            partition, least = described[topic].partitions[0], int(configs[topic]["min.insync.replicas"])
            if partition.in_sync < least:
                raise _HeldError(
                    REPLICAS,
                    f"topic {topic}: {partition.in_sync} of {partition.replicas} replicas are in sync, of"
                    f" which {least} are needed",
                )


def _reason_not_to_use(manifest: Manifest, decisions: LogBounds, journal: LogBounds) -> str | None:
    """Why logs with these bounds do not go on from a checkpoint of this program, or None."""
    if manifest.kind == JUDGE and not manifest.ledger:
        return "was made before a ledger record was written"
    if manifest.decided < decisions.start:
        return f"needs decisions from {manifest.decided}, but they start at {decisions.start}"
    if manifest.applied - 1 < journal.start:
        return f"needs the journal from {manifest.applied - 1}, but it starts at {journal.start}"
    return None


_FAILPOINTS: Final = ("trim.decisions", "trim.journal")
