"""Builds the image, runs `deploy/compose.yaml` with it, kills containers, and audits: `make images`."""

from __future__ import annotations

import argparse
import json
import os
import random
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any, Final

from stream.brokers import docker
from tests.images import stand_ins
from tests.images.deployment import READY_SECONDS, ROOT, Deployment, services
from tests.images.engine import Engine, ImagesError
from tests.steps import require, run_check, say

OURS: Final = "neardup:latest"
LARGEST_BYTES: Final = 550_000_000
"""Uncompressed, beyond the base."""
PAGES: Final = 400
"""Pages of one publication; every fourth is a copy of the one before it."""
WORDS: Final = [f"word{number}" for number in range(5000)]
TOKEN: Final = "this machine only"  # noqa: S105 (the default of compose.yaml)


def build(engine: Engine) -> None:
    begun = time.monotonic()
    engine.build(OURS, ROOT / "deploy" / "Dockerfile", ROOT)
    size = engine.image_bytes(OURS) - engine.image_bytes(stand_ins.PYTHON)
    say(f"  built in {time.monotonic() - begun:.0f} s")
    require(size < LARGEST_BYTES, f"{size / 1e6:.0f} MB beyond its base, of {LARGEST_BYTES / 1e6:.0f}")
    page = json.dumps({"url": "http://a.example/", "text": "one page that is long enough to be judged"})
    for what in ("first", "second"):
        begun = time.monotonic()
        said = engine(
            *("run", "--rm", "--interactive", "--network", "none", "--read-only", "--tmpfs", "/tmp"),  # noqa: S108
            *("--cap-drop", "all", OURS, "scan", "-", "--json"),
            stdin=page,
        )
        seconds = time.monotonic() - begun
        require(json.loads(said)["pages"] == 1, f"the {what} scan in a container took {seconds:.1f} s")


def pages(prefix: str) -> str:
    lines = []
    for number in range(PAGES):
        of = number - (number % 4 == 3)
        words = " ".join(random.Random(f"{prefix} {of}").choices(WORDS, k=120))
        lines.append(json.dumps({"url": f"http://{prefix}.example/{number}", "text": words}))
    return "\n".join(lines)


class Account:
    """Publishes and audits."""

    def __init__(self, deployment: Deployment) -> None:
        self._deployment = deployment
        self._published = 0

    def publish(self, prefix: str) -> None:
        self._deployment.run("publish", "-", stdin=pages(prefix))
        self._published += PAGES

    def settle(self) -> None:
        """Wait until every page has a verdict; then none has two."""
        audited: dict[str, Any] = {}

        def complete() -> bool:
            try:
                audited.update(json.loads(self._deployment.run("audit", "--json")))
            except ImagesError as error:
                audited["said"] = str(error)
                return False
            return True

        self._deployment.wait_until("a clean audit", complete)
        verdicts = ", ".join(f"{count:,} {verdict}" for verdict, count in audited["verdicts"].items())
        require(audited["pages"] == self._published, f"{self._published} pages, one verdict each: {verdicts}")


def check_confinement(deployment: Deployment) -> None:
    """What a process of each of our containers is allowed."""
    limits = {name: service["deploy"]["resources"]["limits"] for name, service in services().items()}
    for service in ("worker", "judge", "elector", "dashboard"):
        for container in deployment.containers(service):
            name, engine = container["Name"], deployment.engine
            status = engine("exec", name, "cat", "/proc/1/status")
            fields = dict(line.split(":\t", 1) for line in status.splitlines() if ":\t" in line)
            require(fields["Uid"].split()[0] == "10001", f"{name} is user 10001")
            require(int(fields["CapEff"], 16) == 0, f"{name} has no capability")
            require(fields["NoNewPrivs"].strip() == "1", f"{name} can gain no privilege")
            require(container["HostConfig"]["ReadonlyRootfs"], f"{name} has a read-only file system")
            refused = engine("exec", name, "sh", "-c", "touch /opt/x 2>/dev/null || echo refused")
            require(refused.strip() == "refused", f"{name} cannot write to it")
            wanted = int(limits[service]["memory"].removesuffix("g")) << 30
            require(container["HostConfig"]["Memory"] == wanted, f"{name} has {wanted >> 30} GiB")


def answer(url: str, token: str | None = None) -> tuple[int, bytes]:
    """Status and body of a page on this machine."""
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    try:
        with urllib.request.urlopen(urllib.request.Request(url, headers=headers), timeout=20) as reply:  # noqa: S310
            return reply.status, reply.read()
    except urllib.error.HTTPError as error:
        return error.code, error.read()
    except OSError:
        return 0, b""


def check_windows(deployment: Deployment, lacking: set[str]) -> None:
    """The dashboard lets in who has the token, and Prometheus scrapes every role."""
    dashboard = "http://127.0.0.1:8787/api/v1/about"
    require(answer(dashboard)[0] == 401, "the dashboard asks for its token")
    require(answer(dashboard, TOKEN)[0] == 200, "and lets in who has it")
    if any(image.startswith("prom/") for image in lacking):
        return

    def scraped() -> bool:
        _, body = answer("http://127.0.0.1:9090/api/v1/targets")
        targets = json.loads(body or b"{}").get("data", {}).get("activeTargets", [])
        return [each["health"] for each in targets] == ["up"] * 5

    deployment.wait_until("Prometheus scrapes two workers and the other roles", scraped)
    say("  Prometheus scrapes two workers and the other roles")


def check_kills(deployment: Deployment, account: Account) -> None:
    """SIGKILL to a container of each role while pages come in; the engine starts it again."""
    for service in ("worker", "judge", "elector", "dashboard"):
        victim = deployment.containers(service)[0]
        account.publish(f"{service}-killed")
        # By its process, as an operator's `kill` of a container also tells the engine not to start it again.
        os.kill(victim["State"]["Pid"], 9)
        say(f"  killed {victim['Name']}")
        deployment.wait_until(f"{service} is healthy again", lambda: deployment.healthy(service))  # noqa: B023
        account.settle()


def check_testcontainers(engine: Engine, work: Path) -> None:
    """The broker of `--broker docker`, by testcontainers, through the engine's Docker-compatible socket."""
    socket = work / "engine.sock"
    service = subprocess.Popen(
        ["podman", "system", "service", "--time", "0", f"unix://{socket}"], env=dict(engine.environment)
    )
    try:
        deadline = time.monotonic() + READY_SECONDS
        while not socket.exists() and time.monotonic() < deadline:
            time.sleep(0.1)
        program = (
            "from stream.brokers.docker import DockerBroker, missing\n"
            "assert missing() is None, missing()\n"
            "broker = DockerBroker(print)\n"
            "broker.kill(); broker.restart(); print(broker.description); broker.stop()\n"
        )
        environment = {
            "DOCKER_HOST": f"unix://{socket}",
            "TESTCONTAINERS_RYUK_DISABLED": "true",  # an image of its own, without a stand-in
            "TESTCONTAINERS_CONNECTION_MODE": "docker_host",
        }
        command = ["env", *(f"{name}={value}" for name, value in environment.items())]
        say("  " + engine.command([*command, sys.executable, "-c", program]).splitlines()[-1])
    finally:
        service.terminate()
        service.wait()


def run(engine: Engine, compose: Path, work: Path, only: str | None) -> None:
    """All checks. Raises StepError."""
    wanted = {service["image"] for service in services().values() if "build" not in service}
    say("images of others")
    made, lacking = stand_ins.provide(engine, wanted | {docker.IMAGE}, work, say)
    say(f"  stand-ins: {', '.join(sorted(made)) or 'none'}; not run: {', '.join(sorted(lacking)) or 'none'}")
    say("our image")
    build(engine)
    if only == "build":
        return
    running = [name for name, service in services().items() if service.get("image") not in lacking]
    deployment = Deployment(engine, compose, f"neardup-images-{os.getpid()}")
    with deployment.health_checks():
        try:
            say(f"compose: {', '.join(running)}")
            deployment.up(running)
            for service in running:
                if service != "topics":
                    deployment.wait_until(f"{service} is healthy", lambda: deployment.healthy(service))  # noqa: B023
                    say(f"  {service} is healthy")
            account = Account(deployment)
            account.publish("first")
            account.settle()
            check_confinement(deployment)
            check_windows(deployment, lacking)
            say("kills")
            check_kills(deployment, account)
        finally:
            deployment.down()
    if docker.IMAGE not in lacking:
        say("testcontainers")
        check_testcontainers(engine, work)


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.images", description=__doc__)
    parser.add_argument("--store", type=Path, default=ROOT / ".cache" / "images", help="images and volumes")
    parser.add_argument("--compose", type=Path, default=Path("podman-compose"), help="the program")
    parser.add_argument("--only", choices=["build"], help="stop after this")
    options = parser.parse_args(arguments)

    def check(work: Path) -> None:
        run(Engine(options.store.absolute(), work / "run"), options.compose, work, options.only)

    return 0 if run_check("images", check) else 1


if __name__ == "__main__":
    sys.exit(main())
