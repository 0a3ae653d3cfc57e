"""Podman, with storage and settings of its own."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from tests.steps import StepError

COMMAND_SECONDS: Final = 300
BUILD_SECONDS: Final = 3600
CONFIGURATION: Final = """\
[containers]
default_ulimits = ["nofile=1024:1024", "nproc=4096:4096"]
[engine]
runtime = "runc"
cgroup_manager = "cgroupfs"
events_logger = "file"
"""
STORAGE: Final = """\
[storage]
driver = "overlay"
graphroot = "{graph}"
runroot = "{run}"
"""


class ImagesError(StepError):
    """Something of the images does not hold."""


class Engine:
    """Podman as root, without systemd. Images and volumes stay in `directory`."""

    def __init__(self, directory: Path, runtime_directory: Path) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        (directory / "containers.conf").write_text(CONFIGURATION)
        (directory / "storage.conf").write_text(
            STORAGE.format(graph=directory / "storage", run=runtime_directory)
        )
        self.environment: Mapping[str, str] = {
            **os.environ,
            "NEARDUP_ELECT": "longest",  # the policy of the elector in deploy/compose.yaml
            "CONTAINERS_CONF": str(directory / "containers.conf"),
            "CONTAINERS_STORAGE_CONF": str(directory / "storage.conf"),
        }

    def __call__(self, *arguments: str | Path, seconds: float = COMMAND_SECONDS, stdin: str = "") -> str:
        """Run `podman` and return its standard output. Raises ImagesError."""
        return self.command(["podman", *map(str, arguments)], seconds=seconds, stdin=stdin)

    def command(
        self, command: Sequence[str], *, seconds: float = COMMAND_SECONDS, stdin: str = "", wanted: int = 0
    ) -> str:
        """Run a command that uses the engine. Raises ImagesError, with its last words, if it fails."""
        try:
            done = subprocess.run(
                command,
                env=dict(self.environment),
                input=stdin,
                capture_output=True,
                text=True,
                timeout=seconds,
                check=False,
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            raise ImagesError(f"{' '.join(command[:4])}: {error}") from error
        if done.returncode != wanted:
            said = (done.stderr or done.stdout).strip()[-3000:]
            raise ImagesError(f"{' '.join(command)} exited with {done.returncode}:\n{said}")
        return done.stdout

    def has_image(self, name: str) -> bool:
        try:
            self("image", "exists", name)
        except ImagesError:
            return False
        return True

    def image_bytes(self, name: str) -> int:
        """The size of an image, uncompressed."""
        return int(self("image", "inspect", "--format", "{{.Size}}", name))

    def build(self, name: str, file: Path, context: Path) -> None:
        """Build an image; layers that are here already are used again."""
        # chroot: a build needs no network namespace and none of the engine's privileges.
        # docker: the other format drops health checks.
        self(
            *("build", "--layers", "--isolation", "chroot", "--format", "docker"),
            *("--tag", name, "--file", file, context),
            seconds=BUILD_SECONDS,
        )
