"""The dashboard role: folds verdicts and serves the figures. It is crash-only, like every role."""

from __future__ import annotations

import asyncio
import gc
import logging
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager, nullcontext
from functools import partial
from typing import Any, Final

import msgspec
import structlog
from aiohttp import web

from stream.dashboard.answers import About
from stream.dashboard.counting.app import Statistics, directory_of
from stream.dashboard.counting.forgotten import ForgottenPages
from stream.dashboard.counting.latest_verdicts import LatestVerdicts
from stream.dashboard.counting.restored import FiguresDirectory
from stream.dashboard.counting.verdict_columns import VerdictColumns
from stream.dashboard.deployment.system import OwnFigures
from stream.dashboard.deployment.system import Watch as DeploymentWatch
from stream.dashboard.lookup.kept_pages import KeptPages
from stream.dashboard.lookup.lookup import Finder
from stream.dashboard.lookup.reading import keep_reading
from stream.dashboard.lookup.superseded import SupersededClusters
from stream.dashboard.web.api import Api
from stream.dashboard.web.gate import Gate, check_reach
from stream.dashboard.web.server import application
from stream.errors import StaleError
from stream.figures import EARLIER, FIGURES, Meta, kind_of_dashboard
from stream.kafka import broker_metadata, clients
from stream.kafka.broker_metadata import LogBounds
from stream.kafka.in_flight import in_thread
from stream.kafka.names import TopicNames
from stream.messages.journal import Genesis
from stream.messages.reasons import REASONS
from stream.ops.elapsed import Elapsed
from stream.ops.http import http_server
from stream.ops.metrics import DashboardMetrics, our_version
from stream.ops.watch import Watch
from stream.private import private_directory
from stream.roles.role import Role
from stream.settings import Settings
from stream.states.erasing import Erasing
from stream.states.upkeep import Upkeep

GRACE_SECONDS: Final = 1.0
"""Seconds that open requests may take at shutdown."""
LOOK_SECONDS: Final = 1.0
"""Seconds between looks for pages that are forgotten."""

log = structlog.get_logger(__name__)


class DashboardRole(Role[Watch[DashboardMetrics]]):
    """One dashboard process."""

    topics, grants, handles_batches = "dashboard", "dashboard", True

    def __init__(self, settings: Settings) -> None:
        """Raises SettingsError if the dashboard would be reachable without authentication."""
        check_reach(settings)
        super().__init__(settings, Watch(DashboardMetrics()))
        self.url: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        """URL of the page, once it is served."""

    def _serving(self) -> AbstractAsyncContextManager[None]:
        """The page is served with metrics and health."""
        return nullcontext()

    async def _work(self, genesis: Genesis) -> None:
        """Serve until the role is to end."""
        async with self._entered(self._all_parts(genesis)) as first_error:
            if first_error is not None:
                await self._unless_stopped(first_error())
            log.info("stopped")

    @asynccontextmanager
    async def _all_parts(self, genesis: Genesis) -> AsyncIterator[Callable[[], Coroutine[Any, Any, None]]]:
        """Run all parts while entered. Yields a coroutine function that waits for the first error and raises
        it."""
        settings, names, metrics, health = self.settings, self.names, self.watch.metrics, self.watch.health
        directory = directory_of(settings)
        private_directory(directory)
        if (earlier := directory / EARLIER).exists():
            log.warning("earlier_figures_unused", directory=str(earlier), topics=names.dashboard_changelogs)
        fresh, bounds = await self._verdicts(genesis)
        recent = LatestVerdicts()

        def tell(batch: VerdictColumns) -> None:
            recent.tell(batch)
            for verdict, pages in batch.kinds().items():
                metrics.verdicts.labels(verdict).inc(pages)

        metrics.listeners.set_function(lambda: recent.listeners)
        metrics.near_one_anchor.set_function(lambda: recent.near_one_anchor)
        path = directory / FIGURES
        async with (
            FiguresDirectory(settings, path, fresh, bounds).opened() as state,
            AsyncExitStack() as stack,
        ):
            upkeep = Upkeep(settings, kind_of_dashboard(settings.dashboard_name), path, metrics)
            await stack.enter_async_context(upkeep.beside(state))
            forgotten = ForgottenPages(genesis, state)
            metrics.erasing.set_function(Elapsed(lambda: not state.is_erased))
            await in_thread(recent.fill, state)
            statistics = Statistics(settings, state, bounds, tell, forgotten)
            stack.callback(statistics.failed.cancel)
            finder = Finder(settings, genesis, state.history, state.cluster)
            metrics.lookups_near_one_anchor.set_function(lambda: finder.near_one_anchor)
            superseded, kept = SupersededClusters(settings, names.clusters), KeptPages(settings)
            own = OwnFigures(
                read=lambda: statistics.read,
                anchors=lambda: finder.anchors,
                counted=lambda: statistics.counted,
                window=lambda: finder.window,
                requested=lambda: state.meta.requested,
            )
            watch = DeploymentWatch(settings, len(bounds), health, own)
            watch.report(metrics)
            health.checks = {"tables": statistics.ready.is_set, "brokers": lambda: watch.now.error is None}
            gate = Gate(settings)
            described = about(settings, genesis)
            api = Api(statistics, recent, watch, finder, superseded, kept, described, gate, metrics)
            await stack.enter_async_context(self._served(application(api, gate, settings, metrics, health)))
            await statistics.load()
            await stack.enter_async_context(_started(statistics.app))
            beside = [
                await stack.enter_async_context(_beside(work))
                for work in (
                    statistics.fold_on(),
                    upkeep.run(),
                    statistics.sweep(),
                    watch.run(),
                    finder.run(),
                    superseded.run(),
                    keep_reading(partial(forgotten.follow, settings), f"topic {names.decisions}"),
                    _erase_forgotten(statistics, recent, forgotten),
                    *([kept.run()] if settings.elect else ()),
                )
            ]
            _freeze_garbage_collector()
            group = names.dashboard(settings.dashboard_name)
            log.info("dashboard_started", url=self.url.result(), group=group)
            yield partial(_first_error, statistics, beside)

    async def _verdicts(self, genesis: Genesis) -> tuple[Meta, dict[int, LogBounds]]:
        """What a state of the verdicts begins as, and the bounds of their partitions."""
        topic = self.names.verdicts
        async with broker_metadata.connect(self.settings) as client:
            fresh = Meta(
                cluster=await broker_metadata.cluster_id(client),
                journal=genesis.journal,
                topic=await broker_metadata.topic_id(client, topic),
            )
            bounds = await broker_metadata.log_bounds(client, [topic])
        return fresh, {key.partition: each for key, each in bounds.items()}

    @asynccontextmanager
    async def _served(self, app: web.Application) -> AsyncIterator[None]:
        host, port = self.settings.dashboard_host, self.settings.dashboard_port
        async with http_server(
            app, host, port, options="dashboard", close_seconds=GRACE_SECONDS, cancel_handlers=True
        ) as url:
            self.url.set_result(f"{url}/")
            log.info("serving", url=self.url.result())
            yield


def about(settings: Settings, genesis: Genesis) -> About:
    """Describe this deployment for the page."""
    return About(
        namespace=settings.namespace,
        version=our_version(),
        scheme=genesis.scheme_id,
        scheme_options=msgspec.structs.asdict(genesis.scheme),
        verdict_options=msgspec.structs.asdict(genesis.options),
        reasons=REASONS,
        rejected_topic=TopicNames(settings.namespace).rejected,
    )


async def _erase_forgotten(statistics: Statistics, recent: LatestVerdicts, forgotten: ForgottenPages) -> None:
    """Erase what is forgotten, until cancelled."""

    async def blank() -> bool:
        await recent.rewrite(forgotten.rewrite)
        await statistics.blank()
        return False

    erasing = Erasing(statistics.state, blank)
    try:
        while True:
            if erasing.is_due:
                await erasing.attend()
            await asyncio.sleep(LOOK_SECONDS)
    finally:
        await erasing.close()


def _freeze_garbage_collector() -> None:
    """Exempt existing objects from garbage collection, which takes 0.1 s per full pass otherwise."""
    gc.collect()
    gc.freeze()


async def _first_error(statistics: Statistics, beside: list[asyncio.Task[None]]) -> None:
    """Wait until the Faust app or a background task fails, and raise the error."""
    while not statistics.failed.done():
        crash = getattr(statistics.app, "crash_reason", None) or statistics.app.should_stop
        if isinstance(crash, clients.DENIED) or isinstance(crash, StaleError):  # noqa: SIM101
            raise crash
        if crash:
            cause = crash if isinstance(crash, BaseException) else None
            raise RuntimeError(f"the Faust app ended: {crash!r}") from cause
        await asyncio.wait({statistics.failed, *beside}, timeout=0.5, return_when=asyncio.FIRST_COMPLETED)
        for task in beside:
            if task.done():
                task.result()
    statistics.failed.result()


@asynccontextmanager
async def _started(app: Any) -> AsyncIterator[None]:
    # Faust logs every rebalance and commit. Failures reach us as errors.
    for name in ("faust", "mode"):
        logging.getLogger(name).setLevel(logging.ERROR)
    try:
        await app.start()
        yield
    finally:
        await app.stop()


@asynccontextmanager
async def _beside(work: Coroutine[Any, Any, None]) -> AsyncIterator[asyncio.Task[None]]:
    task = asyncio.create_task(work)
    try:
        yield task
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
