"""A short run of `make chaos`, and what it rests on: a schedule by seed, a network, a disk, an oracle."""

from __future__ import annotations

import asyncio
import json
import random
import re
import subprocess
import sys
from itertools import islice
from pathlib import Path

import pytest

from tests.chaos import schedule
from tests.chaos.checker.oracle import IndexedOracle
from tests.chaos.configurations import OPTIONS
from tests.chaos.disk import Disk
from tests.chaos.failpoints import FAILPOINTS
from tests.chaos.kafka_cluster.ports import free_ports
from tests.chaos.kafka_cluster.proxy import HOST, Link
from tests.night import cases
from tests.oracle import Oracle, OraclePage

SEED = 20070508
CRASH_POINTS = Path(__file__).parents[2] / "docs" / "architecture" / "crash-points.md"


@pytest.mark.night
@pytest.mark.broker
@pytest.mark.chaos
@pytest.mark.timeout(1800)
async def test_a_short_run_finds_every_verdict_right(tmp_path: Path, report) -> None:
    file = tmp_path / "report.json"
    command = f"-m tests.chaos --minutes 0.75 --brokers 3 --seed {SEED} --rate 40 --report {file}"
    process = await asyncio.create_subprocess_exec(
        sys.executable, *command.split(), stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT
    )
    try:
        printed = (await process.communicate())[0].decode()
    finally:
        if process.returncode is None:
            process.terminate()
            await process.wait()
    assert process.returncode == 0, printed
    said = json.loads(file.read_text())
    assert said["clean"]
    assert sum(said["verdicts"].values()) + said["lost"] + said["gone"] == said["pages"] > 200
    assert said["total_kills"] >= 5
    assert len(said["faults"]) >= 5
    report(f"{said['faults']}, kills {said['kills']}, longest stall {said['longest_stall']} s")


@pytest.mark.parametrize("epoch", range(3))
def test_each_failpoint_has_its_turn(epoch: int) -> None:
    def dealt(kind: str, count: int) -> set[str]:
        lanes = [name for name in schedule.ROLES if name.rstrip("0123456789-") == kind]
        plans = [plan for name in lanes for plan in islice(schedule.lane(7, epoch, name), 40 * count)]
        failpoints = [[plan.place for plan in plans if plan.lane == name and plan.place] for name in lanes]
        return {place for each in failpoints for place in each[:count]}

    for kind, places in FAILPOINTS.items():
        assert dealt(kind, len(places)) == {*places}


def test_the_architecture_says_where_processes_are_killed() -> None:
    rows = [row.partition("*(chaos)* |") for row in CRASH_POINTS.read_text().splitlines()]
    named = {name for row, mark, _ in rows if mark for name in re.findall(r"`(flush|[a-z]+\.[a-z_]+)`", row)}
    assert named == {place for places in FAILPOINTS.values() for place in places}


def test_checker_and_load_import_nothing_of_what_they_check() -> None:
    code = (
        "import sys, tests.chaos.checker.checker, tests.chaos.load;"
        "sys.exit(any(name.split('.')[0] in ('stream', 'aiokafka') for name in sys.modules))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@pytest.mark.parametrize("pages", cases([400, 150], by_day=[150]))
@pytest.mark.parametrize("options", OPTIONS, ids=lambda options: options.name)
def test_the_indexed_oracle_is_the_oracle(options, pages: int) -> None:
    rng = random.Random(SEED)
    oracles = [kind(**options.oracle) for kind in (Oracle, IndexedOracle)]
    known = [(0, bytes(272))]
    for number in range(pages):
        fingerprint, sketch = known[rng.randrange(len(known))]
        for _ in range(rng.choice((0, 1, 3, 9, 40))):
            fingerprint ^= 1 << rng.randrange(64)
        changed = bytearray(sketch)
        for _ in range(rng.choice((0, 0, 2, 30))):
            changed[rng.randrange(240)] ^= 1 << rng.randrange(8)
        changed[240:248] = rng.choice((20, 900)).to_bytes(8, "little")
        changed[248 + rng.randrange(24)] ^= rng.choice((0, 0, 0, 7))
        known.append((fingerprint, bytes(changed)))
        page = OraclePage(number, f"u{rng.randrange(150)}", fingerprint, bytes(changed))
        said = [oracle.judge(page) for oracle in oracles]
        assert said[0] == said[1]


async def test_what_a_cut_link_holds_back_arrives_when_it_is_whole() -> None:
    async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while said := await reader.read(100):
            writer.write(said)
        writer.close()

    port, upstream = free_ports(2)
    link = Link("LISTENER", 1, port, upstream)
    server = await asyncio.start_server(echo, HOST, upstream)
    await link.open()
    try:
        reader, writer = await asyncio.open_connection(HOST, port)
        writer.write(b"whole")
        assert await reader.readexactly(5) == b"whole"
        await link.set("both")
        writer.write(b"held")
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(
                asyncio.shield(answer := asyncio.ensure_future(reader.readexactly(4))), 0.3
            )
        await link.set()
        assert await answer == b"held"
        await link.set("refused")
        assert await reader.read() == b""
        writer.close()
        await writer.wait_closed()
    finally:
        await link.close()
        server.close()
        await asyncio.sleep(0.1)  # aborted transports close their sockets in the loop's next turns


def test_a_disk_without_power_keeps_what_was_synced_and_nothing_else(tmp_path: Path) -> None:
    disk = Disk(tmp_path / "judge")
    try:
        if not disk.own:
            pytest.skip("a file system of one's own needs root, mkfs.ext4 and loop devices")
        subprocess.run(["sync", "--file-system", str(disk.path)], check=True)
        synced, written = disk.path / "synced", disk.path / "written"
        synced.write_bytes(b"x" * 10_000)
        subprocess.run(["sync", str(synced)], check=True)
        with synced.open("ab") as more:
            more.write(b"y" * 10_000)
        written.write_bytes(b"z")
        disk.lose_power()
        assert synced.read_bytes() == b"x" * 10_000
        assert not written.exists()
        disk.fill()
        with pytest.raises(OSError, match="No space"):
            written.write_bytes(bytes(1 << 16))
        disk.empty()
        written.write_bytes(bytes(1 << 16))
    finally:
        disk.remove()
