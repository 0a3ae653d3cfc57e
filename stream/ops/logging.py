"""Structured logs: JSON lines for machines, readable lines for people, always on stderr.

Log lines of libraries and Python's warnings have the same format, so with JSON every line is JSON. Repeated
lines are rate-limited (`stream/ops/repeats.py`).
"""

from __future__ import annotations

import logging
import sys
from typing import Final

import structlog
from structlog.typing import EventDict, Processor

from stream.ops.repeats import Repeats

_QUIET: Final = {
    # Kafka 4's coordinator answers "not enough replicas, retrying" while it still writes the markers of the
    # last transaction; aiokafka retries, with a warning each time. Roles log rebalances themselves.
    "aiokafka": logging.ERROR,
    # Brokers that do not know a topic yet that Faust just created. Topics that stay missing are our error.
    "aiokafka.cluster": logging.CRITICAL,
    "asyncio": logging.WARNING,
}
_OURS: Final = "stream"


def configure(log_format: str, role: str, least: int = logging.INFO, *, unattended: bool = False) -> None:
    """Send structlog and stdlib logging to stderr. `log_format` is auto, text or json.

    With auto, commands that run unattended log JSON where stderr is not a terminal, for programs. Other
    commands always log text, as people read the stderr of a scan also where it is redirected.

    The level is `least` for our own loggers and WARNING for libraries. Every line has its time, and the
    `role`, but in the text of commands that a person runs.
    """
    for_people = sys.stderr.isatty() or not unattended
    text = log_format == "text" or (log_format == "auto" and for_people)
    shared: list[Processor] = [
        structlog.stdlib.add_log_level,
    ]
    plain = text and not unattended
    if not plain:
        shared += [structlog.processors.TimeStamper(fmt="iso", utc=True), _adding(role)]
    structlog.configure(
        processors=[*shared, structlog.stdlib.ProcessorFormatter.wrap_for_formatter],
        wrapper_class=structlog.make_filtering_bound_logger(least),
        logger_factory=structlog.stdlib.LoggerFactory(),
    )
    _format_everything(shared, _rendering(text), plain)
    logging.captureWarnings(capture=True)
    logging.getLogger(_OURS).setLevel(least)
    for name, level in _QUIET.items():
        logging.getLogger(name).setLevel(level)


def _adding(role: str) -> Processor:
    """Return what adds the role to lines that name none, also to those of threads, which have no context."""

    def add(_: object, __: str, fields: EventDict) -> EventDict:
        fields.setdefault("role", role)
        return fields

    return add


def _rendering(text: bool) -> list[Processor]:
    """Return the renderers. Tracebacks omit local variables, which hold passwords and tokens of clients."""
    if text:
        return [
            structlog.dev.ConsoleRenderer(
                colors=sys.stderr.isatty(), exception_formatter=structlog.dev.plain_traceback,
                pad_event_to=0, pad_level=False,
            )
        ]  # fmt: skip
    frames = structlog.tracebacks.ExceptionDictTransformer(show_locals=False)
    return [structlog.processors.ExceptionRenderer(frames), structlog.processors.JSONRenderer(sort_keys=True)]


def _is_for_a_person(record: logging.LogRecord) -> bool:
    """Filter out Faust's lines about each of its services starting or stopping."""
    moved = isinstance(record.msg, str) and record.msg.startswith("[^")
    return not moved or record.levelno > logging.INFO


def _format_everything(shared: list[Processor], rendering: list[Processor], plain: bool) -> None:
    """Install one handler for all loggers."""
    foreign = shared if plain else [*shared, structlog.stdlib.add_logger_name]
    handler = logging.StreamHandler(sys.stderr)
    handler.addFilter(Repeats())
    handler.addFilter(_is_for_a_person)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=foreign,
            processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, *rendering],
        )
    )
    root = logging.getLogger()
    root.handlers = [handler]
    root.setLevel(logging.WARNING)
