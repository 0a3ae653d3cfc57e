"""The dashboard role: folds verdicts and serves the figures. It is crash-only, like every role."""

from __future__ import annotations

import asyncio
import gc
import logging
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from typing import Any, Final

import msgspec
import structlog
from aiohttp import web

from stream.dashboard.answers import About, Forgetting
from stream.dashboard.counting.app import Statistics, directory_of, tables_directory
from stream.dashboard.counting.forgotten import ForgottenPages
from stream.dashboard.counting.latest_verdicts import LatestVerdicts
from stream.dashboard.counting.rewriting import Rewriting
from stream.dashboard.counting.verdict_columns import VerdictColumns
from stream.dashboard.deployment.system import OwnFigures, Watch
from stream.dashboard.lookup.kept_pages import KeptPages
from stream.dashboard.lookup.lookup import Finder
from stream.dashboard.lookup.reading import keep_reading
from stream.dashboard.lookup.superseded import SupersededClusters
from stream.dashboard.web.api import Api
from stream.dashboard.web.gate import Gate, check_reach
from stream.dashboard.web.server import application
from stream.errors import DamagedStateError, NeardupError, StaleError
from stream.kafka import acl_check, broker_metadata, clients, record_batches, topics
from stream.kafka.names import TopicNames
from stream.messages.journal import Genesis
from stream.messages.reasons import REASONS
from stream.ops.health import Health
from stream.ops.http import http_server
from stream.ops.metrics import DashboardMetrics, our_version
from stream.ops.runtime_tuning import batch_process_tuning
from stream.ops.signals import enter_unless_stopped, run_unless_stopped, stop_event_on_signals
from stream.settings import Settings
from stream.tables.store.failures import rename_damaged, translate_cause

GRACE_SECONDS: Final = 1.0
"""Seconds that open requests may take at shutdown."""

log = structlog.get_logger(__name__)


class DashboardRole:
    """One dashboard process."""

    def __init__(self, settings: Settings) -> None:
        """Raises SettingsError if the dashboard would be reachable without authentication."""
        check_reach(settings)
        self.settings = settings
        self._stop = asyncio.Event()
        self.url: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        """URL of the page, once it is served."""

    def stop(self) -> None:
        """Ask `run` to return."""
        self._stop.set()

    async def run(self) -> None:
        """Serve until SIGTERM, SIGINT or `stop()`. Any error is raised; the recovery is a restart."""
        with batch_process_tuning(), stop_event_on_signals(self._stop), clients.translated_errors():
            genesis = await run_unless_stopped(self._stop, self._genesis())
            if genesis is not None:
                try:
                    await self._run(genesis)
                except NeardupError:
                    raise
                except Exception as error:
                    directory = tables_directory(self.settings)
                    if (cause := translate_cause(directory, error)) is None:
                        raise
                    if isinstance(cause, DamagedStateError) and self.settings.rebuild_damaged:
                        moved = rename_damaged(directory)
                        log.error("state_damaged", error=str(cause), moved_to=str(moved))
                        cause = StaleError(
                            f"state directory {directory}: damaged and moved to {moved}; the next start"
                            " rebuilds it"
                        )
                    raise cause from error

    async def _genesis(self) -> Genesis:
        genesis = await topics.wait_for_genesis(self.settings)
        await topics.check(self.settings, "follow")
        await acl_check.check(self.settings, "dashboard")
        return genesis

    async def _run(self, genesis: Genesis) -> None:
        async with enter_unless_stopped(self._stop, self._all_parts(genesis)) as first_error:
            if first_error is not None:
                await run_unless_stopped(self._stop, first_error())
            log.info("stopped")

    @asynccontextmanager
    async def _all_parts(self, genesis: Genesis) -> AsyncIterator[Callable[[], Coroutine[Any, Any, None]]]:
        """Run all parts while entered. Yields a coroutine function that waits for the first error and raises
        it."""
        settings, names = self.settings, TopicNames(self.settings.namespace)
        async with broker_metadata.connect(settings) as client:
            partitions = (await broker_metadata.partition_counts(client, [names.verdicts]))[names.verdicts]
        # A row is in the partition of its verdicts, so the changelogs have as many, also if some were added.
        await topics.add_partitions(settings, names.dashboard_changelogs, partitions)
        metrics, health = DashboardMetrics(), Health()
        # Compile the loops for writing changelogs now, outside the event loop.
        await asyncio.to_thread(record_batches.rehearse)
        recent = LatestVerdicts()
        await recent.fill(settings, names.verdicts)

        def tell(batch: VerdictColumns) -> None:
            recent.tell(batch)
            for verdict, pages in batch.kinds().items():
                metrics.verdicts.labels(verdict).inc(pages)

        metrics.listeners.set_function(lambda: recent.listeners)
        metrics.near_one_anchor.set_function(lambda: recent.near_one_anchor)
        rewriting = Rewriting(genesis, directory_of(settings))
        statistics = Statistics(settings, partitions, tell, rewriting.forgotten)
        rewriting.begin(partitions, statistics.stored_partitions)
        await topics.create_changelogs(settings, statistics.changelogs, partitions)
        finder = Finder(settings, genesis, statistics.history, statistics.cluster_rows)
        metrics.lookups_near_one_anchor.set_function(lambda: finder.near_one_anchor)
        superseded = SupersededClusters(settings, names.clusters)
        kept = KeptPages(settings)
        watch = Watch(
            settings,
            partitions,
            health,
            OwnFigures(
                read=lambda: statistics.read,
                anchors=lambda: finder.anchors,
                folded=lambda: statistics.folded,
                window=lambda: finder.window,
                forgetting=lambda: _forgetting(rewriting.forgotten),
            ),
        )
        watch.report(metrics)
        async with AsyncExitStack() as stack:
            stack.callback(statistics.failed.cancel)
            health.checks = {"tables": statistics.ready.is_set, "brokers": lambda: watch.now.error is None}
            gate = Gate(settings)
            described = about(settings, genesis)
            api = Api(statistics, recent, watch, finder, superseded, kept, described, gate, metrics)
            await stack.enter_async_context(self._serving(application(api, gate, settings, metrics, health)))
            await stack.enter_async_context(_started(statistics.app))
            beside = [
                await stack.enter_async_context(_beside(work))
                for work in (
                    statistics.sweep(),
                    watch.run(),
                    finder.run(),
                    superseded.run(),
                    keep_reading(partial(rewriting.forgotten.follow, settings), "requests_unavailable"),
                    rewriting.run(statistics, recent),
                    *([kept.run()] if settings.elect else ()),
                )
            ]
            _freeze_garbage_collector()
            await acl_check.check(settings, "dashboard")  # now also for the topics that Faust created
            log.info("dashboard_started", url=self.url.result(), group=names.dashboard)
            yield partial(_first_error, statistics, beside)

    @asynccontextmanager
    async def _serving(self, app: web.Application) -> AsyncIterator[None]:
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


def _forgetting(requests: ForgottenPages) -> Forgetting | None:
    waiting, since = requests.waiting
    if not waiting and not requests.requests:
        return None
    return Forgetting(requests.requests, waiting, None if since is None else since / 1000)


def _freeze_garbage_collector() -> None:
    """Exempt existing objects from garbage collection, which takes 0.1 s per full pass otherwise."""
    gc.collect()
    gc.freeze()


async def _first_error(statistics: Statistics, beside: list[asyncio.Task[None]]) -> None:
    """Wait until the Faust app or a background task fails, and raise the error."""
    while not statistics.failed.done():
        crash = getattr(statistics.app, "crash_reason", None) or statistics.app.should_stop
        if isinstance(crash, clients.DENIED):
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
