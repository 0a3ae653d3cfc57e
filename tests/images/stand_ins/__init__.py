"""Images for machines that reach package mirrors, but no registry of images."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Final

from stream.brokers import docker, embedded_jars
from tests.images.engine import Engine, ImagesError

HERE: Final = Path(__file__).parent
PYTHON: Final = "python:3.11-slim-bookworm"
PULL_SECONDS: Final = 600
DEBIAN_SECONDS: Final = 1800
CERTIFICATES: Final = Path("/etc/ssl/certs/ca-certificates.crt")
INTO_DEBIAN: Final = """
set -e
export DEBIAN_FRONTEND=noninteractive
apt-get update -qq
apt-get install -y -qq --no-install-recommends python3 python3-venv
ln -sf /usr/bin/python3 /usr/local/bin/python
apt-get clean
rm -rf /var/lib/apt/lists/*
"""


def provide(
    engine: Engine, images: set[str], work: Path, say: Callable[[str], None]
) -> tuple[set[str], set[str]]:
    """Have `images` and the base of ours in the engine. Returns those with a stand-in, and those without."""
    made: set[str] = set()
    lacking: set[str] = set()
    for image in [PYTHON, *sorted(images)]:
        if engine.has_image(f"localhost/{image}"):
            made.add(image)
        elif not (engine.has_image(image) or _pulled(engine, image)):
            say(f"{image}: no registry has it for us")
            if _make(engine, image, work):
                made.add(image)
            else:
                lacking.add(image)
    return made, lacking


def _pulled(engine: Engine, image: str) -> bool:
    name = f"docker.io/{image if '/' in image else f'library/{image}'}"
    try:
        engine("pull", "--quiet", name, seconds=PULL_SECONDS)
    except ImagesError:
        return False
    return True


def _make(engine: Engine, image: str, work: Path) -> bool:
    if image == PYTHON:
        _python(engine, work)
    elif image.startswith("apache/kafka:") or image == docker.IMAGE:
        context = work / "kafka"
        shutil.copytree(HERE, context, dirs_exist_ok=True)
        shutil.copytree(embedded_jars.jars(lambda _: None), context / "jars", dirs_exist_ok=True)
        engine.build(image, context / "kafka.Dockerfile", context)
    elif image.startswith("prom/prometheus:"):
        engine.build(image, HERE / "prometheus.Dockerfile", HERE)
    else:
        return False
    return True


def _python(engine: Engine, work: Path) -> None:
    """Debian 12 with its Python 3.11 and the certificates that this machine trusts, in place of the base."""
    root = work / "debian"
    for command in (
        ["debootstrap", "--variant=minbase", "--include=ca-certificates", "bookworm", str(root)],
        ["chroot", str(root), "sh", "-c", INTO_DEBIAN],
    ):
        engine.command(command, seconds=DEBIAN_SECONDS)
    shutil.copy(CERTIFICATES, root / CERTIFICATES.relative_to("/"))
    archive = work / "debian.tar"
    subprocess.run(["tar", "-C", root, "-cf", archive, "."], check=True)
    engine("import", "--quiet", "--change", f"ENV PIP_CERT={CERTIFICATES}", archive, PYTHON)
    archive.unlink()
    shutil.rmtree(root)
