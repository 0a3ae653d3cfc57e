"""Runs `neardup` in tests: within this process, or in a process of its own."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from click.testing import CliRunner, Result

from stream.cli import cli
from stream.settings import Settings
from tests.waiting import HANG_SECONDS


def neardup(*arguments: str | Path, **options: Any) -> Result:
    """The result of a command within this process. Errors other than click's own are raised.

    `options` are those of `CliRunner.invoke`, such as `input` and `env`.
    """
    return CliRunner(catch_exceptions=False).invoke(cli, [str(part) for part in arguments], **options)


def interpreting() -> dict[str, str]:
    """Our environment, in which commands may interpret loops, as those of users do."""
    return {name: value for name, value in os.environ.items() if name != "NUMBA_DISABLE_JIT"}


async def neardup_process(settings: Settings, *arguments: str) -> tuple[int, str, str]:
    """Return exit code, standard output and standard error of a command that gets its settings by
    environment."""
    return await run_process(
        sys.executable, "-m", "stream.cli", *arguments, environment=settings.environment()
    )


async def succeeded(settings: Settings, *arguments: str) -> tuple[str, str]:
    """Return standard output and standard error of such a command, which has to succeed."""
    code, out, error = await neardup_process(settings, *arguments)
    assert code == 0, (out, error)
    return out, error


async def run_process(*command: str, environment: Mapping[str, str]) -> tuple[int, str, str]:
    """Return exit code, standard output and standard error of a process with `environment` added to ours."""
    process = await asyncio.create_subprocess_exec(
        *command, env=os.environ | environment, stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    try:
        async with asyncio.timeout(HANG_SECONDS):
            out, error = await process.communicate()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    return process.returncode or 0, out.decode(), error.decode()
