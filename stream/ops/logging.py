"""Structured logs: JSON lines for machines, readable lines on a terminal, always on stderr."""

from __future__ import annotations

import logging
import sys
from typing import Final

import structlog

_QUIET: Final = {
    # Kafka 4's coordinator answers "not enough replicas, retrying" while it still writes the markers of the
    # last transaction; aiokafka retries and warns each time. Rebalances are logged by the roles themselves.
    "aiokafka": logging.ERROR,
    "asyncio": logging.WARNING,
}


def configure(log_format: str, role: str, least: int = logging.INFO) -> None:
    """Send structlog and stdlib logging to stderr. `log_format` is auto, text or json."""
    text = log_format == "text" or (log_format == "auto" and sys.stderr.isatty())
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            *(
                [structlog.dev.ConsoleRenderer(colors=sys.stderr.isatty())]
                if text
                else [structlog.processors.dict_tracebacks, structlog.processors.JSONRenderer(sort_keys=True)]
            ),
        ],
        wrapper_class=structlog.make_filtering_bound_logger(least),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
        cache_logger_on_first_use=True,
    )
    structlog.contextvars.bind_contextvars(role=role)
    logging.basicConfig(
        stream=sys.stderr, level=logging.WARNING, format="%(levelname)s %(name)s: %(message)s"
    )
    for name, level in _QUIET.items():
        logging.getLogger(name).setLevel(level)
