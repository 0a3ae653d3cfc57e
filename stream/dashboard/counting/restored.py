"""The directory of a dashboard's state, which is restored from a checkpoint if it is empty: the topic of
verdicts may not have all any more that was counted."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from stream.checkpoints.manifest import CheckpointName, Manifest
from stream.dashboard.counting.state import State
from stream.figures import FORMAT, Meta, kind_of_dashboard
from stream.kafka.broker_metadata import LogBounds
from stream.settings import Settings
from stream.states.directory import StateDirectory
from stream.states.restored import Checkpoints, misfit_of_fields


class FiguresDirectory(StateDirectory[State]):
    """The directory of a dashboard's state."""

    def __init__(self, settings: Settings, path: Path, fresh: Meta, bounds: Mapping[int, LogBounds]) -> None:
        """`fresh` is what a new state begins as, `bounds` are those of the verdicts, by partition."""
        super().__init__(settings, path, lambda: State.open(path, fresh))
        self._fresh, self._bounds = fresh, bounds
        kind = kind_of_dashboard(settings.dashboard_name)
        self._checkpoints = Checkpoints(settings, fresh.journal, kind, self._misfit, path)

    async def _restore(self, avoided: set[CheckpointName]) -> CheckpointName | None:
        return await self._checkpoints.restore_if_empty(self.path, avoided)

    async def _misfit(self, manifest: Manifest) -> str | None:
        """Why a dashboard cannot go on from a checkpoint with the verdicts as they are, or None."""
        fresh = self._fresh
        if reason := misfit_of_fields(manifest, format=FORMAT, cluster=fresh.cluster, topic=fresh.topic):
            return reason
        for partition, offset in manifest.offsets["verdicts"].items():
            end = self._bounds[partition].end if partition in self._bounds else 0
            if offset > end:
                return f"has counted partition {partition} up to {offset}, but it ends at {end}"
        return None
