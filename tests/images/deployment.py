"""`deploy/compose.yaml`, run by podman-compose."""

from __future__ import annotations

import json
import re
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final

import yaml

from tests.images.engine import Engine, ImagesError

ROOT: Final = Path(__file__).parents[2]
COMPOSE: Final = ROOT / "deploy" / "compose.yaml"
UP_SECONDS: Final = 600
READY_SECONDS: Final = 300
HEALTH_SECONDS: Final = 5


def services() -> dict[str, Any]:
    """The services of the compose file, with the defaults of its variables."""
    text = re.sub(r"\$\{\w+:-([^}]*)\}", r"\1", COMPOSE.read_text("utf-8"))
    found: dict[str, Any] = yaml.safe_load(text)["services"]
    return found


class Deployment:
    """A running project of the compose file."""

    def __init__(self, engine: Engine, program: Path, project: str) -> None:
        self.engine = engine
        self.project = project
        self._compose = [str(program), "--profile", "elect", "-p", project, "-f", str(COMPOSE)]

    def up(self, names: list[str]) -> None:
        """Start services, each when the conditions of those that it depends on hold.

        Older releases of Podman know no healthy containers, and none that depend on one that has ended, so
        podman-compose is given one service at a time. It leaves `replicas` aside, too.
        """
        for name in names:
            service = services()[name]
            for needed, wanted in service.get("depends_on", {}).items():
                holds = self.healthy if wanted["condition"] == "service_healthy" else self.ended_well
                self.wait_until(f"{needed}: {wanted['condition']}", lambda: holds(needed))  # noqa: B023
            scale = f"--scale={name}={service['deploy'].get('replicas', 1)}"
            self.engine.command(
                [*self._compose, "up", "--detach", "--no-build", "--no-recreate", "--no-deps", scale, name],
                seconds=UP_SECONDS,
            )

    def down(self) -> None:
        left = [each["Id"] for each in self.containers()]  # podman-compose does not know of further replicas
        if left:
            self.engine("rm", "--force", "--time", "5", *left)
        self.engine.command([*self._compose, "down", "--volumes", "--timeout", "5"])

    def containers(self, service: str | None = None) -> list[dict[str, Any]]:
        """What `podman inspect` says of all containers, or those of one service."""
        labels = [f"io.podman.compose.project={self.project}"]
        if service:
            labels.append(f"com.docker.compose.service={service}")
        filters = [part for label in labels for part in ("--filter", f"label={label}")]
        ids = self.engine("ps", "--all", "--quiet", *filters).split()
        found: list[dict[str, Any]] = json.loads(self.engine("inspect", *ids)) if ids else []
        return found

    def run(self, *arguments: str, stdin: str = "") -> str:
        """Run `neardup` with arguments in a container of its own, in the project's network."""
        return self.engine(
            *("run", "--rm", "--interactive", "--network", f"{self.project}_default"),
            *("--read-only", "--tmpfs", "/tmp:size=256m,mode=1777", "--cap-drop", "all"),  # noqa: S108 (its own)
            *("--env", "NEARDUP_BOOTSTRAP_SERVERS=kafka:19092", "neardup:latest", *arguments),
            stdin=stdin,
        )

    def wait_until(self, what: str, holds: Callable[[], bool]) -> None:
        """Wait until something holds. Raises ImagesError with the states and last words of all containers."""
        deadline = time.monotonic() + READY_SECONDS
        while not holds():
            if time.monotonic() > deadline:
                raise ImagesError(f"not within {READY_SECONDS} s: {what}\n{self._last_words()}")
            time.sleep(1)

    def healthy(self, service: str) -> bool:
        """Whether all containers of a service are running and their health checks pass."""
        found = self.containers(service)
        return bool(found) and all(
            each["State"]["Running"] and each["State"].get("Health", {}).get("Status") == "healthy"
            for each in found
        )

    def ended_well(self, service: str) -> bool:
        """Whether the containers of a service have ended with exit code 0."""
        found = self.containers(service)
        return bool(found) and all(
            each["State"]["Status"] == "exited" and each["State"]["ExitCode"] == 0 for each in found
        )

    @contextmanager
    def health_checks(self) -> Iterator[None]:
        """Run the containers' health checks, as Podman leaves that to systemd's timers."""
        ended = threading.Event()

        def check() -> None:
            while not ended.wait(HEALTH_SECONDS):
                with suppress(ImagesError):
                    for each in self.containers():
                        if each["State"]["Running"] and each["Config"].get("Healthcheck"):
                            with suppress(ImagesError):
                                self.engine("healthcheck", "run", each["Id"])

        thread = threading.Thread(target=check, name="health checks")
        thread.start()
        try:
            yield
        finally:
            ended.set()
            thread.join()

    def _last_words(self) -> str:
        lines = []
        for each in self.containers():
            state = each["State"]
            health = state.get("Health", {}).get("Status", "no health check")
            lines.append(f"{each['Name']}: {state['Status']} ({state['ExitCode']}), {health}")
            with suppress(ImagesError):
                lines.append(self.engine("logs", "--tail", "5", each["Id"])[-1500:])
        return "\n".join(lines)
