"""Restores a state directory from a checkpoint that fits the topics and this program."""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Collection
from contextlib import aclosing
from pathlib import Path
from typing import Final

import structlog

from stream.checkpoints.catalogue import Catalogue
from stream.checkpoints.kinds import JUDGE, form_of
from stream.checkpoints.known_damage import RECORD, known_damage
from stream.checkpoints.manifest import CheckpointName, Manifest
from stream.checkpoints.restoring import is_empty, restore
from stream.errors import DamagedCheckpointError, StateError
from stream.kafka.in_flight import in_stoppable_thread, in_thread
from stream.kafka.names import TopicNames
from stream.messages.journal import Genesis
from stream.settings import Settings
from stream.states.position import Logs, bounds_of_logs, misfit

log = structlog.get_logger(__name__)

_UNSET: Final = (
    "the setting checkpoints names no store: set it to where checkpoints of this state are, and an empty"
    " directory is restored from there"
)


class Checkpoints:
    """The checkpoints of a journal and kind, of which those that fit are restored."""

    def __init__(
        self,
        settings: Settings,
        journal: str,
        kind: str,
        misfit: Callable[[Manifest], Awaitable[str | None]],
        directory: Path | None = None,
    ) -> None:
        """`settings` may name their store: without one, there are none. `misfit` says why the program cannot
        go on from a checkpoint, or returns None. What `known_damage` says of `directory` is not restored.
        Raises SettingsError if the store's URL is none."""
        self._settings, self._journal, self._kind, self._misfit = settings, journal, kind, misfit
        self._directory = directory
        self._catalogue = Catalogue(settings.checkpoints) if settings.checkpoints else None
        self._refused: list[str] = []
        """Why others do not fit."""

    def _refuse(self, name: CheckpointName, reason: str) -> None:
        """Note and log why a checkpoint is not used."""
        log.warning("checkpoint_refused", checkpoint=str(name), reason=reason)
        self._refused.append(reason)

    @property
    def reasons(self) -> str:
        """Why none fits."""
        if self._catalogue is None:
            return _UNSET
        why = "; ".join(self._refused) or f"there is none of this journal and of kind {self._kind}"
        return f"no checkpoint in {self._catalogue} can be used: {why}"

    async def manifests(
        self, avoided: Collection[CheckpointName] = (), *, oldest_first: bool = False
    ) -> AsyncGenerator[Manifest, None]:
        """Yield those that fit, the newest first, or the oldest with `oldest_first`. Others are named in the
        log.

        Raises CheckpointError if the store fails. Waits for brokers.
        """
        if (catalogue := self._catalogue) is None:
            return
        damaged = set[str]() if self._directory is None else known_damage(self._directory)
        names = await in_thread(catalogue.kept, self._journal, self._kind)
        for name in sorted(set(names).difference(avoided), reverse=not oldest_first):
            try:
                manifest = await in_thread(catalogue.read, name)
            except DamagedCheckpointError as error:
                self._refuse(name, str(error))
                continue
            reason = await self._misfit(manifest)
            if str(name) in damaged:
                reason = f"was restored and then found damaged, as a file *{RECORD} says"
            if bad := [each.name for each in manifest.files if each.digest in damaged]:
                reason = f"has {bad[0]} as it was when it was found damaged"
            if reason is None:
                yield manifest
            else:
                self._refuse(name, f"checkpoint {name}: {reason}")

    async def restore(
        self, directory: Path, avoided: Collection[CheckpointName] = (), *, oldest_first: bool = False
    ) -> Manifest | None:
        """Restore the first one of `manifests` that is not damaged, and return it; None if there is none.
        Raises as `manifests` and `restore` do, but for damage."""
        async with aclosing(self.manifests(avoided, oldest_first=oldest_first)) as manifests:
            async for manifest in manifests:
                try:
                    await self._download(manifest, directory)
                    return manifest
                except DamagedCheckpointError as error:
                    self._refuse(manifest.name, str(error))
        return None

    async def _download(self, manifest: Manifest, directory: Path) -> None:
        """Restore in a thread, which ends on cancellation after the files that it is at."""
        began, catalogue = time.monotonic(), self._catalogue
        assert catalogue is not None  # noqa: S101 (it has the manifest)
        fields = {"checkpoint": str(manifest.name), "made": manifest.made, "bytes": manifest.bytes}
        log.info("restoring", directory=str(directory), **fields)
        await in_stoppable_thread(lambda turn: restore(catalogue, manifest, directory, lambda _: turn()))
        log.info("restored", seconds=round(time.monotonic() - began, 1), **fields)

    async def restore_if_empty(
        self, directory: Path, avoided: Collection[CheckpointName] = ()
    ) -> CheckpointName | None:
        """Restore an empty or missing state directory. Returns what was restored; None if the state must be
        built from the topics.

        A checkpoint that does not fit or is damaged is named in the log, and the next older one is tried;
        `avoided` ones are not. Raises CheckpointError if the store fails.
        """
        if not is_empty(directory):
            return None
        if (manifest := await self.restore(directory, avoided)) is not None:
            return manifest.name
        if self._catalogue is not None:
            log.info("no_checkpoint", checkpoints=str(self._catalogue), journal=self._journal)
        return None


class FittingCheckpoints(Checkpoints):
    """The checkpoints of a judge or elector from which this program can go on with journal and decisions as
    they are."""

    def __init__(
        self,
        settings: Settings,
        genesis: Genesis,
        cluster_id: str,
        kind: str = JUDGE,
        directory: Path | None = None,
        *,
        any_generation: bool = False,
    ) -> None:
        """With `any_generation`, the setting `tables_generation` may be another one. Raises SettingsError."""
        super().__init__(settings, genesis.journal, kind, self._misfit_of, directory)
        self._genesis, self._cluster_id, self._any_generation = genesis, cluster_id, any_generation
        self._logs: Logs | None = None

    async def _misfit_of(self, manifest: Manifest) -> str | None:
        settings, genesis = self._settings, self._genesis
        reason = misfit_of_program(manifest, genesis, self._cluster_id) or self._misfit_of_settings(manifest)
        if reason is not None:
            return reason
        self._logs = self._logs or await bounds_of_logs(settings)
        error = await misfit(manifest, self._logs, settings, genesis)
        return None if error is None else str(error)

    def _misfit_of_settings(self, manifest: Manifest) -> str | None:
        if manifest.kind != JUDGE:
            elect = self._settings.elect
            return None if manifest.elect == elect else f"has elect={manifest.elect}, but {elect} is needed"
        generation = self._settings.tables_generation
        if manifest.generation != generation and not self._any_generation:
            return f"has generation {manifest.generation}, but {generation} is needed"
        return None

    async def advice(self) -> tuple[Manifest | None, str]:
        """Return the checkpoint that would replace a state which the logs do not reach any more, if there is
        one, and what to do. Raises CheckpointError if the store fails."""
        async with aclosing(self.manifests()) as manifests:
            async for manifest in manifests:
                return manifest, (
                    f"checkpoint {manifest.name} in {self._catalogue}, made {manifest.made}, will do: move"
                    " the directory away, and it is restored (a role moves it by itself with"
                    " --rebuild-damaged)"
                )
        return None, self.reasons

    async def restore_if_empty(
        self, directory: Path, avoided: Collection[CheckpointName] = ()
    ) -> CheckpointName | None:
        """The same. Raises StateError if none is left and the topics do not have everything any more."""
        restored = await super().restore_if_empty(directory, avoided)
        trimmed = await trimmed_logs(self._settings) if is_empty(directory) else None
        if trimmed:
            raise StateError(f"state directory {directory}: empty, but {trimmed}, and {self.reasons}")
        return restored


async def trimmed_logs(settings: Settings) -> str | None:
    """Say which of the logs do not have everything any more, or return None. Waits for brokers."""
    names, logs = TopicNames(settings.namespace), await bounds_of_logs(settings)
    starts = {names.decisions: logs.decisions.start, names.journal: logs.journal.start}
    trimmed = (f"topic {topic} starts at {start}" for topic, start in starts.items() if start)
    return " and ".join(trimmed) or None


def misfit_of_program(manifest: Manifest, genesis: Genesis, cluster_id: str) -> str | None:
    """Return why this program cannot go on from a checkpoint, whatever its settings are, or None."""
    return misfit_of_fields(
        manifest,
        format=form_of(manifest.kind).format,
        cluster=cluster_id,
        journal=genesis.journal,
        scheme=genesis.scheme_id,
        options=genesis.options.id,
    )


def misfit_of_fields(manifest: Manifest, **needed: object) -> str | None:
    """Return the first of these fields in which a manifest is not what is needed, or None."""
    for name, value in needed.items():
        if getattr(manifest, name) != value:
            return f"has {name} {getattr(manifest, name)}, but {value} is needed"
    return None
