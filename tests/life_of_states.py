"""What the state of every role does, whatever it keeps: the tests of each kind are a class that derives from
these."""

from __future__ import annotations

# ruff: noqa: ASYNC240 (small files, and nothing else runs)
import abc
import dataclasses
import random
import re
import shutil
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager, closing, nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

import msgspec
import pytest
from aiokafka import TopicPartition
from structlog.testing import capture_logs

from stream.checkpoints.catalogue import Catalogue
from stream.checkpoints.kinds import described, meta_of
from stream.checkpoints.known_damage import note_damage
from stream.checkpoints.manifest import CheckpointFile, Manifest
from stream.checkpoints.restoring import restore
from stream.checkpoints.uploads import Uploads, linked
from stream.checkpoints.verification import verify_whole
from stream.errors import (
    DamagedStateError,
    StaleError,
    StateBusyError,
    StateError,
    TrimmedLogError,
)
from stream.judge.batch import Decided, Entry
from stream.kafka import broker_metadata, clients
from stream.kafka.broker_metadata import LogBounds
from stream.messages.journal import Genesis
from stream.ops.metrics import StateMetrics
from stream.settings import Settings
from stream.states import directory, position
from stream.states.directory import FollowingDirectory, StateDirectory
from stream.states.upkeep import Upkeep
from stream.tables.store.meta_record import META
from stream.tables.store.rocks import DEFAULT
from tests.waiting import until

OFTEN = 1e-6
Unfit = tuple[dict[str, Any], str]
"""Fields of a manifest, and what is said of them."""


class LifeOfAState(abc.ABC):
    """A kind of state, and the tests of it."""

    kind: ClassVar[str]
    """That of its checkpoints."""
    metrics: ClassVar[type[StateMetrics]]
    owners: ClassVar[dict[str, str]]
    """Argument of `open` that says whose state it is -> what a refusal says of another one."""

    @abc.abstractmethod
    def open(self, path: Path, **owner: str) -> Any:
        """Open the state in a directory, or a new one."""

    def meta_of(self, path: Path) -> Any:
        """The metadata of the last flush."""
        return meta_of(path, self.kind)

    @abc.abstractmethod
    def advance(self, state: Any) -> bool:
        """Apply the next part of the input, from where the state says that it is. Whether there was any."""

    @abc.abstractmethod
    def forget(self, state: Any) -> bytes:
        """Forget a page that the state has, of which it had these bytes."""

    @abc.abstractmethod
    def erase(self, state: Any) -> None:
        """Erase what was forgotten, as the role does."""

    def content(self, state: Any) -> str:
        """Digest of what the state has."""
        return str(state.store.digest())

    def finish(self, path: Path) -> str:
        """Apply all that is left of the input to the state in a directory, and return a digest of it."""
        with closing(self.open(path)) as state:
            while self.advance(state):
                pass
            return self.content(state)

    def directory(self, path: Path, *, rebuild: bool) -> StateDirectory[Any]:
        settings = Settings(state_dir=path.parent, rebuild_damaged=rebuild)
        return StateDirectory(settings, path, lambda: self.open(path))

    @abc.abstractmethod
    def restoring(self, path: Path) -> StateDirectory[Any]:
        """The directory, which may be rebuilt, and restored from checkpoints in `objects` beside it."""

    @pytest.fixture
    def logs(self) -> Any:
        """What the topics have, in place of brokers."""
        return None

    @pytest.mark.parametrize("seed", range(3))
    def test_killed_anywhere_it_ends_as_one_that_was_not_killed(self, tmp_path: Path, seed: int) -> None:
        rng, kills = random.Random(seed), 0
        state = self.open(tmp_path / "0")
        while self.advance(state):
            if rng.random() < 0.4:
                state.store.flush()
            if rng.random() < 0.5 and kills < 8:
                kills += 1
                left = tmp_path / str(kills)  # by a process that is killed now
                shutil.copytree(state.store.path, left)
                state.close()
                state = self.open(left)
        assert kills
        found = self.content(state)
        state.close()
        assert found == self.finish(tmp_path / "whole")

    def test_it_belongs_to_one_journal_and_says_so(self, tmp_path: Path) -> None:
        expected = self.finish(tmp_path / "state")
        for owner, said in self.owners.items():
            with pytest.raises(StateError, match=f"state directory {tmp_path}/state .*{said}"):
                self.open(tmp_path / "state", **{owner: "cd" * 16})
        assert self.finish(tmp_path / "state") == expected

    def test_another_format_is_named(self, tmp_path: Path) -> None:
        with closing(self.open(tmp_path)) as state:
            self._put_meta(state, msgspec.structs.replace(state.meta, version=1))
        for use in (self.open, self.meta_of):
            with pytest.raises(StateError, match=r"another version made it \(format 1; this program reads"):
                use(tmp_path)

    def test_records_without_a_meta_record_are_damage(self, tmp_path: Path) -> None:
        self.finish(tmp_path)
        with closing(self.open(tmp_path)) as state:
            writes = state.store.batch()
            writes.delete(DEFAULT, META)
            state.store.write(writes)
        with pytest.raises(DamagedStateError, match="records, but no meta record"):
            self.open(tmp_path)

    def test_one_process_writes_and_others_may_read_its_last_flush(self, tmp_path: Path) -> None:
        with closing(self.open(tmp_path)) as state:
            assert self.advance(state)
            state.store.flush()
            flushed = state.meta
            with pytest.raises(StateBusyError, match=f"state directory {tmp_path}: in use"):
                self.open(tmp_path)
            assert self.meta_of(tmp_path) == flushed
            assert self.advance(state)
            assert self.meta_of(tmp_path) == flushed != state.meta
        assert self.meta_of(tmp_path) == state.meta

    async def test_a_damaged_one_is_refused_by_name_or_set_aside(self, tmp_path: Path) -> None:
        path = tmp_path / "state"
        self.finish(path)
        file = max(path.glob("*.sst"), key=lambda each: each.stat().st_size)
        cut = file.read_bytes()[: file.stat().st_size // 2]
        file.write_bytes(cut)
        with pytest.raises(DamagedStateError, match=f"state directory {path}: damaged: .*{file.name}"):
            async with self.directory(path, rebuild=False).opened():
                pass
        assert file.read_bytes() == cut
        async with self.directory(path, rebuild=True).opened() as state:
            new = self.content(state)
        (moved,) = tmp_path.glob("state.damaged-2*")
        assert (moved / file.name).read_bytes() == cut
        with closing(self.open(tmp_path / "new")) as state:
            assert new == self.content(state)
        assert self.finish(path) == self.finish(tmp_path / "new")

    @pytest.mark.parametrize("rebuild", [False, True])
    async def test_damage_that_is_met_later_ends_the_role(self, tmp_path: Path, rebuild: bool) -> None:
        path = tmp_path / "state"
        with pytest.raises(StaleError if rebuild else DamagedStateError) as raised:
            async with self.directory(path, rebuild=rebuild).opened():
                raise DamagedStateError("a block that nobody had read")
        assert path.exists() != rebuild
        assert ("the next start rebuilds it" in str(raised.value)) == rebuild

    async def test_a_trimmed_log_is_no_damage(self, tmp_path: Path) -> None:
        path = tmp_path / "state"
        with pytest.raises(TrimmedLogError):
            async with self.directory(path, rebuild=True).opened():
                raise TrimmedLogError("an offset is needed")
        assert path.exists()

    async def test_a_file_that_was_damaged_when_it_was_uploaded_is_not_restored(
        self, tmp_path: Path, logs: Any
    ) -> None:
        path = tmp_path / "state"
        self.finish(path)
        file = max(path.glob("*.sst"), key=lambda each: each.stat().st_size)
        content = bytearray(file.read_bytes())
        content[len(content) // 4] ^= 1
        upkeep = Upkeep(Settings(scrub_hours=OFTEN), self.kind, path, self.metrics())
        with closing(self.open(path)) as state:
            with file.open("r+b") as spoiled:
                spoiled.write(content)
            self.upload(state, tmp_path / "objects")
            async with upkeep.beside(state):
                with pytest.raises(DamagedStateError):
                    await until(upkeep.attend)  # and the process is killed
        async with self.restoring(path).opened():
            assert not [each for each in path.glob("*.sst") if each.read_bytes() == content]
        assert len(list(tmp_path.glob("state.damaged-2*"))) == 1

    async def test_what_is_written_is_flushed_and_measured(self, tmp_path: Path) -> None:
        metrics = self.metrics()
        upkeep = Upkeep(Settings(flush_seconds=OFTEN, scrub_hours=0), self.kind, tmp_path, metrics)
        with closing(self.open(tmp_path)) as state:
            async with upkeep.beside(state):
                assert self.advance(state)

                def is_flushed() -> bool:
                    upkeep.attend()
                    return bool(metrics.state_bytes._value.get()) and self.meta_of(tmp_path) == state.meta

                await until(is_flushed)
                assert metrics.state_free_bytes._value.get() > 0
                upkeep.attend()
                files = sorted(tmp_path.glob("*.sst"))
                for _ in range(3):
                    upkeep.attend()  # nothing was written since
                assert sorted(tmp_path.glob("*.sst")) == files

    def test_what_is_forgotten_is_erased_though_it_is_killed_meanwhile(self, tmp_path: Path) -> None:
        self.finish(tmp_path / "0")
        state = self.open(tmp_path / "0")
        gone = self.forget(state)
        state.store.flush()
        shutil.copytree(state.store.path, tmp_path / "1")
        self.erase(state)
        state.close()
        killed = self.open(tmp_path / "1")
        assert self._has(killed, gone)
        self.erase(killed)
        killed.close()
        for path in (tmp_path / "0", tmp_path / "1"):
            with closing(self.open(path)) as state:
                assert not self._has(state, gone)
            assert not any(gone in each.read_bytes() for each in path.glob("*.sst"))

    def upload(self, state: Any, objects: Path) -> Manifest:
        """Make a checkpoint."""
        with linked(state.store, self.kind) as moment:
            assert moment is not None
            return Uploads(Catalogue(str(objects)), self.kind, "cd" * 16, 2).upload(moment)

    @pytest.fixture
    def made(self, tmp_path: Path) -> Manifest:
        """A state in `state`, and a later checkpoint."""
        with closing(self.open(tmp_path / "state")) as state:
            assert self.advance(state)
            state.store.flush()
            shutil.copytree(state.store.path, tmp_path / "before")
            assert self.advance(state)
            manifest = self.upload(state, tmp_path / "objects")
        shutil.rmtree(tmp_path / "state")
        (tmp_path / "before").rename(tmp_path / "state")
        return manifest

    def test_a_restored_one_goes_on(self, tmp_path: Path, made: Manifest) -> None:
        restore(Catalogue(str(tmp_path / "objects")), made, tmp_path / "restored")
        assert described(self.kind, self.meta_of(tmp_path / "restored")).offsets == made.offsets
        assert self.meta_of(tmp_path / "state") != self.meta_of(tmp_path / "restored")
        assert self.finish(tmp_path / "restored") == self.finish(tmp_path / "whole")

    def unfit(self, made: Manifest) -> list[Unfit]:
        """Checkpoints from which this state cannot go on, besides the one that was made."""
        lacking = CheckpointFile("000099.sst", "ab" * 32, 1)
        return [
            ({"files": [*made.files, lacking]}, f"checkpoint .*: {lacking.name}: .* is missing"),
            ({"format": 1}, "has format 1, but"),
            ({"cluster": "elsewhere"}, "has cluster elsewhere, but"),
        ]

    async def test_checkpoints_that_do_not_fit_are_named_and_the_next_older_one_is_restored(
        self, tmp_path: Path, logs: Any, made: Manifest
    ) -> None:
        path, unfit = tmp_path / "state", self.unfit(made)
        for later, (fields, _) in enumerate(unfit, 1):
            other = msgspec.structs.replace(made, time=made.time + later, **fields)
            Catalogue(str(tmp_path / "objects")).add(other)
        named = [said for _, said in reversed(unfit)]
        damaged = f"checkpoint {made.name}: was restored and then found damaged"
        for said, restored in ((named, [str(made.name)]), ([*named, damaged], [])):
            shutil.rmtree(path)
            with capture_logs() as logged:
                async with self.restoring(path).opened():
                    pass
            assert [each["checkpoint"] for each in logged if each["event"] == "restored"] == restored
            reasons = [each["reason"] for each in logged if each["event"] == "checkpoint_refused"]
            for pattern, reason in zip(said, reasons, strict=True):
                assert re.search(pattern, reason)
            note_damage(path, DamagedStateError(f"state directory {path}: damaged: 3 anchors of 4"))

    def _has(self, state: Any, gone: bytes) -> bool:
        store = state.store
        return any(gone in part for family in store.families for pair in store.scan(family) for part in pair)

    def _put_meta(self, state: Any, meta: Any) -> None:
        writes = state.store.batch()
        writes.put(DEFAULT, META, msgspec.msgpack.encode(meta))
        state.store.write(writes)


class LifeOfAFollower(LifeOfAState):
    """The same of a state that follows journal and decisions."""

    genesis: ClassVar[Genesis]

    @abc.abstractmethod
    def decided(self) -> list[Decided]:
        """The input."""

    def test_a_checkpoint_is_verified_as_a_whole(self, tmp_path: Path, made: Manifest) -> None:
        verify_whole(Catalogue(str(tmp_path / "objects")), made, self.genesis, tmp_path / "scratch")

    @pytest.fixture
    def logs(self, monkeypatch: pytest.MonkeyPatch) -> Logs:
        logs = Logs(self.decided())
        for module in (directory, position):
            monkeypatch.setattr(module, "journal_reader", logs.journal_reader)
        monkeypatch.setattr(directory, "TopicReader", logs.topic_reader)
        monkeypatch.setattr(position, "bounds_soon", logs.bounds_soon)

        async def cluster(*_: object) -> str:
            return "cluster"

        monkeypatch.setattr(broker_metadata, "cluster_id", cluster)
        monkeypatch.setattr(clients, "client", lambda _: None)
        monkeypatch.setattr(clients, "open_client", lambda *_, **__: nullcontext())
        return logs

    def following(self, path: Path, *, rebuild: bool = False, store: bool = True) -> FollowingDirectory[Any]:
        settings = Settings(
            state_dir=path.parent,
            rebuild_damaged=rebuild,
            checkpoints=str(path.parent / "objects") if store else None,
            elect="longest",
            tables_generation=1 << 16,
        )
        return FollowingDirectory(settings, self.genesis, path, self.kind, lambda _: self.open(path))

    def restoring(self, path: Path) -> StateDirectory[Any]:
        return self.following(path, rebuild=True)

    async def test_a_lost_one_is_restored_or_refused(
        self, tmp_path: Path, logs: Logs, made: Manifest
    ) -> None:
        path = tmp_path / "state"
        shutil.rmtree(path)
        logs.trim(made.decided, made.applied - 1)
        with pytest.raises(
            StateError, match=r"empty, but topic .* and the setting checkpoints names no store"
        ):
            await applied(self.following(path, store=False))
        assert not path.exists()
        assert await applied(self.following(path)) == made.applied
        shutil.rmtree(path)
        logs.trim(made.decided + 1, made.applied)
        with pytest.raises(StateError, match=f"empty, but .* checkpoint {made.name}: topic .* needed from"):
            await applied(self.following(path))
        assert not path.exists()

    async def test_a_damaged_one_is_replaced_by_a_checkpoint(
        self, tmp_path: Path, logs: Logs, made: Manifest
    ) -> None:
        path = tmp_path / "state"
        (path / "CURRENT").write_text("nothing")
        with pytest.raises(DamagedStateError, match="CURRENT"):
            await applied(self.following(path))
        assert await applied(self.following(path, rebuild=True)) == made.applied
        assert len(list(tmp_path.glob("state.damaged-2*"))) == 1

    def unfit(self, made: Manifest) -> list[Unfit]:
        ahead = [made.offsets | {topic: {0: 10**6}} for topic in ("decisions", "journal")]
        setting = ("generation", 999) if self.kind == "judge" else ("elect", "newest")
        return [
            *super().unfit(made),
            ({"scheme": "0" * 16}, "has scheme 0000000000000000, but"),
            ({"options": "other"}, "has options other, but"),
            ({setting[0]: setting[1]}, f"has {setting[0]}.{setting[1]}, but"),
            ({"last": bytes(16)}, "built from another journal, whose record"),
            ({"offsets": ahead[0]}, "decisions up to 1000000, but it ends at"),
            ({"offsets": ahead[1]}, "journal up to 1000000, but it ends at"),
        ]

    @pytest.mark.parametrize("topic", ["decisions", "journal"])
    async def test_one_that_a_log_does_not_reach_is_refused_or_set_aside(
        self, tmp_path: Path, logs: Logs, made: Manifest, topic: str
    ) -> None:
        path = tmp_path / "state"
        start = {"decisions": made.decided, "journal": made.applied - 1}[topic]
        logs.starts[topic] = start
        said = f"state directory {path}: topic .*{topic}: needed from .*, but it starts at {start}; "
        with pytest.raises(StateError, match=f"{said}the setting checkpoints names no store"):
            await applied(self.following(path, rebuild=True, store=False))
        with pytest.raises(
            StateError, match=f"{said}checkpoint {made.name} in .* will do: .*--rebuild-damaged"
        ):
            await applied(self.following(path))
        assert not list(tmp_path.glob("state.outdated-*"))
        assert await applied(self.following(path, rebuild=True)) == made.applied
        assert len(list(tmp_path.glob("state.outdated-*"))) == 1
        assert self.finish(path) == self.finish(tmp_path / "whole")

    @pytest.mark.parametrize("rebuild", [False, True])
    async def test_a_log_that_is_trimmed_beyond_it_later_ends_the_role(
        self, tmp_path: Path, logs: Logs, made: Manifest, rebuild: bool
    ) -> None:
        path = tmp_path / "state"
        said = "the next start restores it" if rebuild else f"checkpoint {made.name} in"

        async def sleep_through_a_trim() -> None:
            async with self.following(path, rebuild=rebuild).opened():
                logs.trim(made.decided, made.applied - 1)
                raise TrimmedLogError("an offset is needed")

        with pytest.raises(StaleError if rebuild else StateError, match=said):
            await sleep_through_a_trim()
        assert path.exists() != rebuild

    async def test_one_that_is_ahead_or_of_another_journal_is_refused(
        self, tmp_path: Path, logs: Logs, made: Manifest
    ) -> None:
        path, refused = tmp_path / "state", self.following(tmp_path / "state", rebuild=True)
        decided, end = self.meta_of(path).decided, self.meta_of(path).applied
        logs.decided = logs.decided[: decided - 1]
        with pytest.raises(StateError, match=f"decisions up to {decided}, but it ends at {decided - 1}"):
            await applied(refused)
        logs.decided = [
            each._replace(entries=[dataclasses.replace(entry, digest=bytes(16)) for entry in each.entries])
            for each in self.decided()
        ]
        with pytest.raises(StateError, match=f"another journal, whose record {end - 1} differs"):
            await applied(refused)
        assert path.exists()


async def applied(opening: FollowingDirectory[Any]) -> int:
    """Open a directory, and return how far its state has come in the journal."""
    async with opening.opened() as state:
        return int(state.meta.applied)


class Logs:
    """Journal and decisions, as far as the opening of a state asks for them."""

    def __init__(self, decided: Sequence[Decided]) -> None:
        self.decided, self.starts = list(decided), {"decisions": 0, "journal": 0}
        self._end = self.entries[-1].offset + 1

    def trim(self, decisions: int, journal: int) -> None:
        self.starts = {"decisions": decisions, "journal": journal}

    @property
    def entries(self) -> list[Entry]:
        return [entry for each in self.decided for entry in each.entries]

    @asynccontextmanager
    async def topic_reader(self, _: Settings, topic: str, start: int) -> AsyncIterator[Any]:
        yield None

    @asynccontextmanager
    async def journal_reader(self, _: Settings, start: int, genesis: Genesis) -> AsyncIterator[Any]:
        async def read_up_to(until: int) -> list[Entry]:
            return [each for each in self.entries if each.offset < until]

        yield SimpleNamespace(read_up_to=read_up_to)

    async def bounds_soon(self, _: object, topics: Iterable[str]) -> dict[TopicPartition, LogBounds]:
        ends = {"decisions": len(self.decided), "journal": self._end}
        names = {topic: topic.rpartition(".")[2] for topic in topics}
        return {
            TopicPartition(topic, 0): LogBounds(self.starts[name], ends[name], ends[name])
            for topic, name in names.items()
        }
