"""Runs a role as a command: configures logging, logs the final error, and maps it to an exit code."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Coroutine
from typing import Any

import structlog

from stream.errors import NeardupError
from stream.ops import logging
from stream.settings import Settings
from stream.tables.store.failures import disk_error, is_of_disk


def run_role(name: str, settings: Settings, work: Coroutine[Any, Any, None]) -> None:
    """Run `work` to its end. An error is logged as the last line and exits with its class's `exit_code`.

    Any other exception is logged with its traceback and exits with 1.
    """
    logging.configure(settings.log_format, name, unattended=True)
    log = structlog.get_logger(__name__)
    try:
        asyncio.run(work)
    except NeardupError as error:
        log.critical("ended", error=type(error).__name__, message=str(error), exit_code=error.exit_code)
        sys.exit(error.exit_code)
    except Exception as error:
        if isinstance(error, OSError) and is_of_disk(error):
            full = disk_error(error.filename or "unknown", error.strerror)
            log.critical("ended", error=type(full).__name__, message=str(full), exit_code=full.exit_code)
            sys.exit(full.exit_code)
        log.critical("crashed", exc_info=True)
        sys.exit(1)
