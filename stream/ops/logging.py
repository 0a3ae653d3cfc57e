"""Structured logs: JSON lines for machines, readable lines on a terminal, always on stderr.

Lines of libraries, Python's warnings included, take the same way: in JSON, every line is JSON.
"""

from __future__ import annotations

import logging
import sys
from typing import Final

import structlog
from structlog.typing import Processor

_QUIET: Final = {
    # Kafka 4's coordinator answers "not enough replicas, retrying" while it still writes the markers of the
    # last transaction; aiokafka retries and warns each time. Rebalances are logged by the roles themselves.
    "aiokafka": logging.ERROR,
    "asyncio": logging.WARNING,
}
_OURS: Final = "stream"


def configure(log_format: str, role: str, least: int = logging.INFO) -> None:
    """Send structlog and stdlib logging to stderr. `log_format` is auto, text or json.

    Ours from `least` on, libraries' from warnings on; `role` is part of every line.
    """
    text = log_format == "text" or (log_format == "auto" and sys.stderr.isatty())
    shared: list[Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
    ]
    structlog.configure(
        processors=[*shared, structlog.stdlib.ProcessorFormatter.wrap_for_formatter],
        wrapper_class=structlog.make_filtering_bound_logger(least),
        logger_factory=structlog.stdlib.LoggerFactory(),
        cache_logger_on_first_use=True,
    )
    structlog.contextvars.bind_contextvars(role=role)
    _format_everything(shared, _rendering(text))
    logging.captureWarnings(capture=True)
    logging.getLogger(_OURS).setLevel(least)
    for name, level in _QUIET.items():
        logging.getLogger(name).setLevel(level)


def _rendering(text: bool) -> list[Processor]:
    if text:
        return [structlog.dev.ConsoleRenderer(colors=sys.stderr.isatty())]
    return [structlog.processors.dict_tracebacks, structlog.processors.JSONRenderer(sort_keys=True)]


def _format_everything(shared: list[Processor], rendering: list[Processor]) -> None:
    """One handler, for all loggers."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=[*shared, structlog.stdlib.add_logger_name],
            processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, *rendering],
        )
    )
    root = logging.getLogger()
    root.handlers = [handler]
    root.setLevel(logging.WARNING)
