"""One namespace from its creation to its last verdict, with faults in between."""

from __future__ import annotations

import asyncio
import json
import os
import random
import sys
import time
import urllib.request
from collections import Counter
from contextlib import AsyncExitStack, suppress
from pathlib import Path
from typing import Final

from tests.chaos import schedule
from tests.chaos.checker import kept
from tests.chaos.checker.checker import Checker
from tests.chaos.configurations import PARTITIONS, TRIM, Configuration
from tests.chaos.disk import Disk
from tests.chaos.faults import FAULTS
from tests.chaos.faults.state import NEED_A_DISK
from tests.chaos.kafka_cluster.admin import BrokerAdmin, delete_topics, insist, topic_id
from tests.chaos.kafka_cluster.brokers import KafkaCluster
from tests.chaos.kafka_cluster.ports import free_ports
from tests.chaos.kafka_cluster.proxy import HOST
from tests.chaos.load import Load
from tests.chaos.report import Report
from tests.chaos.roles import Role, RoleExits
from tests.chaos.scene import HangError, Scene
from tests.waiting import HANG_SECONDS

FAULTS_AHEAD: Final = 8
"""Faults since the last verdict, after which lanes wait for another one: so that something goes on."""
MODES: Final = {"judge-1": "ordered", "judge-2": "writeback", schedule.ELECTOR: "ordered"}
"""Modes of ext4 on the disks of roles that have a state."""
SESSION_SECONDS: Final = 3
COMMAND_SECONDS: Final = 60.0
"""Time-out of a command while brokers may be away."""


class Epoch:
    """One namespace; `run` adds its outcome to the report."""

    def __init__(
        self,
        kafka: KafkaCluster,
        report: Report,
        number: int,
        made: Configuration,
        directory: Path,
        rate: float,
    ) -> None:
        self._kafka, self._report, self._made, self._number = kafka, report, made, number
        self._namespace = f"chaos-{report.seed}-{number}"
        self._directory, self._logs = directory, directory / "logs"
        self._load = Load(
            kafka.bootstrap_servers, f"{self._namespace}.pages", PARTITIONS, rate, f"{report.seed}/{number}"
        )
        self._ends = RoleExits()
        self._dashboard = free_ports(1)[0]
        self._happened: Counter[str] = Counter()
        self._ahead = 0
        self._told = 0
        """Clusters of which an elector told something."""
        self._over = asyncio.Event()
        self._without: frozenset[str] = frozenset()

    async def run(self, seconds: float) -> None:
        """Faults for so many seconds, then peace until every page has its verdict, then the account."""
        started = time.monotonic()
        self._logs.mkdir(parents=True)
        admin = BrokerAdmin(self._kafka.bootstrap_servers)
        seed_file = self._directory / "seed"
        seed_file.write_text(random.Random(f"{self._report.seed}/{self._number}/seed").randbytes(16).hex())
        created = await self._neardup(
            "topics", "create", "--partitions", str(PARTITIONS), "--scheme", f"seed_file={seed_file}",
            *self._made.options.create,
        )  # fmt: skip
        assert created is not None, f"topics create failed: {self._logs / 'topics.log'}"
        async with AsyncExitStack() as stack:
            roles = await self._roles(stack)
            checker = stack.enter_context(
                Checker(
                    self._kafka.bootstrap_servers,
                    self._namespace,
                    PARTITIONS,
                    self._made.options.oracle,
                    self._load.given,
                )
            )
            scene = Scene(
                self._kafka, admin, self._namespace, roles, self._load, checker, self._report, self._succeeds
            )
            stack.callback(self._load.abandon)
            self._load.start(str(await asyncio.to_thread(insist, lambda: admin.ask(topic_id, scene.pages))))
            for role in roles.values():
                role.begin()
            try:
                await self._faults(scene, seconds)
                await self._peace(scene)
            except HangError as error:
                self._report.unexplained.append(f"epoch {self._number}: {error}")
            await asyncio.gather(*(role.end() for role in roles.values()))
            self._ends.cured += sum(role.count("state_damaged") for role in roles.values() if role.disk)
        await self._account(checker, time.monotonic() - started)
        # Leave nothing behind for the next epoch's brokers to carry.
        await asyncio.to_thread(insist, lambda: admin.ask(delete_topics, f"{self._namespace}."))

    async def _roles(self, stack: AsyncExitStack) -> dict[str, Role]:
        """Return judges with a disk each, workers, and in some epochs the other roles."""
        roles = {}
        absent = set() if self._made.dashboard else {schedule.DASHBOARD}
        absent |= set() if self._made.trimmer else {schedule.TRIMMER}
        absent |= set() if self._made.elector else {schedule.ELECTOR}
        for name in (each for each in schedule.ROLES if each not in absent):
            environment = self._environment(
                self._kafka.network.bootstrap_servers(schedule.listener(name)),
                state_dir=self._directory / name,
                dashboard_port=self._dashboard,
            )
            disk = None
            if name in MODES:
                disk = await asyncio.to_thread(Disk, self._directory / name, MODES[name])
                stack.callback(disk.remove)
                self._without = frozenset() if disk.own else NEED_A_DISK
                environment["NEARDUP_STATE_DIR"] = str(disk.path / "state")
            roles[name] = Role(name, environment, self._logs, self._ends, disk)
            if name == schedule.TRIMMER:
                roles[name].command = TRIM
            stack.push_async_callback(roles[name].abandon)
        return roles

    def _environment(self, servers: str, **other: object) -> dict[str, str]:
        """Return the environment of a role or a command that uses these bootstrap servers."""
        settings: dict[str, object] = {
            "bootstrap_servers": servers, "namespace": self._namespace, "log_format": "json",
            "dev": len(self._kafka.brokers) < 3, "worker_processes": 1,
            "session_seconds": SESSION_SECONDS, "shutdown_seconds": 5,
            "checkpoints": self._directory / "checkpoints", **self._made.settings, **other,
        }  # fmt: skip
        return {f"NEARDUP_{name.upper()}": str(value) for name, value in settings.items()}

    async def _faults(self, scene: Scene, seconds: float) -> None:
        """Run all lanes concurrently for so many seconds."""
        await scene.until(lambda: scene.checker.count)
        names = [name for name in schedule.DECKS if name in scene.roles or name not in schedule.ROLES]
        lanes = [asyncio.create_task(self._lane(scene, name)) for name in names]
        watch = asyncio.create_task(self._watch(scene, seconds))
        try:
            done, _ = await asyncio.wait({watch, *lanes}, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()
        finally:
            self._over.set()
            # Each lane ends its fault, so that what it broke is whole again.
            await asyncio.gather(*lanes, return_exceptions=True)
            watch.cancel()
            await asyncio.gather(watch, return_exceptions=True)
        for lane in lanes:
            lane.result()

    async def _lane(self, scene: Scene, name: str) -> None:
        """Cause the faults of one lane, one after the other."""
        for plan in schedule.lane(scene.report.seed, self._number, name, self._without):
            with suppress(TimeoutError):
                await asyncio.wait_for(self._over.wait(), plan.pause)
            if self._ahead >= FAULTS_AHEAD:
                await scene.until_progress(self._over)
                self._ahead = 0
            if self._over.is_set():
                return
            self._ahead += 1
            if await FAULTS[plan.kind](scene, plan):
                self._happened[plan.kind] += 1
                scene.report.faults[plan.kind] += 1

    async def _watch(self, scene: Scene, seconds: float) -> None:
        """Return after so many seconds. Meanwhile, keep the load informed of the backlog."""
        started, before = time.monotonic(), 0
        while time.monotonic() - started < seconds:
            await asyncio.sleep(1)
            scene.load.check()
            scene.load.backlog = scene.checker.outstanding
            if scene.checker.count != before:
                before, self._ahead = scene.checker.count, 0

    async def _peace(self, scene: Scene) -> None:
        """Repair everything, and wait until every page has its verdict."""
        await self._kafka.network.heal()
        await asyncio.to_thread(scene.load.stop)
        while backlog := scene.checker.outstanding:
            scene.load.backlog = backlog
            await scene.until_progress()
        await scene.until(lambda: not scene.checker.account.requests_waiting)
        if schedule.DASHBOARD in scene.roles:
            await self._recount(scene)
        if schedule.ELECTOR in scene.roles:
            await self._compare_kept(scene)

    async def _compare_kept(self, scene: Scene) -> None:
        """Require that the topic of kept pages says what all verdicts do."""
        account, ends = scene.checker.account, time.monotonic() + HANG_SECONDS
        while True:
            said = await asyncio.to_thread(
                kept.told, self._kafka.bootstrap_servers, f"{self._namespace}.best", PARTITIONS
            )
            wrong = kept.compare(account.judged, said, account.turns, account.lifetime, account.forgotten)
            if not wrong or time.monotonic() > ends:
                break
            await asyncio.sleep(0.5)
        for each in wrong:
            account.findings.note("different", each)
        self._told = len(said)

    async def _recount(self, scene: Scene) -> None:
        """Require that the dashboard counts what the account does."""
        url, verdicts = (
            f"http://{HOST}:{self._dashboard}/api/v1/figures?range=all",
            scene.checker.account.verdicts,
        )
        found: dict[str, int] = {}

        def ask() -> None:
            with suppress(OSError, ValueError), urllib.request.urlopen(url, timeout=10) as answer:
                found.update(json.load(answer)["verdicts"])

        async def counted() -> None:
            while +Counter(found) != verdicts:
                await asyncio.to_thread(ask)
                await asyncio.sleep(0.5)

        try:
            await asyncio.wait_for(counted(), HANG_SECONDS)
        except TimeoutError:
            scene.checker.account.findings.note(
                "different", f"the dashboard counts {found}, due {dict(verdicts)}"
            )

    async def _account(self, checker: Checker, seconds: float) -> None:
        """Report the findings of the checker, and of the system's own recomputation."""
        report, found, verdicts = self._report, checker.account.conclude(), checker.account.verdicts
        audited = await self._neardup("audit", "--recompute", "--json")
        again = json.loads(audited) if audited else {"different": None}
        if again["different"] is None:
            report.unexplained.append(f"epoch {self._number}: audit failed, see {self._logs}")
        report.epochs.append(
            {
                "number": self._number,
                "configuration": self._made.options.name,
                "settings": self._made.settings,
                "seconds": round(seconds, 1),
                "pages": len(self._load.given),
                "verdicts": verdicts,
                "orphans": checker.account.orphans,
                "expired": checker.account.expired,
                "clusters_told": self._told,
                "forgotten": len(checker.account.forgotten),
                "faults": self._happened,
                "longest_stall": round(checker.longest_stall, 1),
                "stalled_at": round(checker.stalled_at, 1),
                "audit": again,
            }
        )
        report.pages += len(self._load.given)
        report.verdicts.update(verdicts)
        report.missing += found.missing
        report.repeated += found.repeated
        report.different += found.different + (again["different"] or 0)
        lost, gone = checker.account.count_excused()
        report.lost += lost
        report.gone += gone
        report.cured += self._ends.cured
        report.ends.update(self._ends.codes)
        report.unexplained += (f"epoch {self._number}: {each}" for each in self._ends.unexplained)
        report.examples += (f"epoch {self._number}: {each}" for each in found.examples)
        report.longest_stall = max(report.longest_stall, checker.longest_stall)

    async def _succeeds(self, *arguments: str) -> bool:
        """Run a command, and return whether it succeeded within a minute."""
        with suppress(TimeoutError):
            return (await asyncio.wait_for(self._run(*arguments), COMMAND_SECONDS))[0] == 0
        return False

    async def _neardup(self, *arguments: str) -> str | None:
        """Return the output of a command; None if there is none."""
        return (await self._run(*arguments))[1] or None

    async def _run(self, *arguments: str) -> tuple[int | None, str]:
        """Return the exit code and the output of a command."""
        with (self._logs / f"{arguments[0]}.log").open("ab") as log:
            process = await asyncio.create_subprocess_exec(
                sys.executable, "-m", "tests.chaos.neardup", *arguments,
                env=os.environ | self._environment(self._kafka.bootstrap_servers),
                stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE, stderr=log,
            )  # fmt: skip
            try:
                printed, _ = await process.communicate()
            finally:
                if process.returncode is None:
                    process.kill()
        return process.returncode, printed.decode().strip()
