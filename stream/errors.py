"""All errors that are raised on purpose. Each message names the option, topic, record or file at fault."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import ClassVar, Final

EXIT_ERROR: Final = 2
EXIT_DISK: Final = 74
"""EX_IOERR of sysexits.h: a disk is full or fails. A restart succeeds once the disk is repaired."""
EXIT_REFUSED: Final = 78
"""EX_CONFIG of sysexits.h: a restart would fail in the same way; somebody must act first."""


class NeardupError(Exception):
    """Base class of all errors that this package raises on purpose."""

    exit_code: ClassVar[int] = EXIT_ERROR
    """Exit code of a role that ends with this error. All but EXIT_REFUSED ask for a restart."""


class SettingsError(NeardupError):
    """An option is missing, malformed or contradicts another option; the message names it."""

    exit_code = EXIT_REFUSED


class RefusedError(NeardupError):
    """A role refuses to start or to continue, because verdicts could become wrong. Nothing was written."""

    exit_code = EXIT_REFUSED


class StaleError(RefusedError):
    """A precondition that held when the process started no longer holds; a restart cures it."""

    exit_code = EXIT_ERROR


class SchemeMismatchError(RefusedError):
    """Fingerprints have another scheme than the journal, state directory or index they are used with."""


class StateError(RefusedError):
    """A state directory is not of this Kafka cluster or journal, or is ahead of the decisions topic."""


class TrimmedLogError(StateError):
    """Records that are needed were deleted from the beginning of journal or decisions; the message names the
    topic."""


class StateBusyError(StateError):
    """A state directory is in use, or work on it was interrupted; the next attempt may succeed."""

    exit_code = EXIT_ERROR


class DamagedStateError(StateError):
    """A state directory is corrupt; the message names the file and the remedy."""


class CheckpointError(NeardupError):
    """A checkpoint cannot be made or restored, because its store or the judge does not do its part; the
    message names the file at fault."""


class DamagedCheckpointError(CheckpointError):
    """A checkpoint lacks a file, or has one that is not what was uploaded; the message names both."""

    exit_code = EXIT_REFUSED


class DiskError(NeardupError):
    """A disk is full or fails; the message names the directory."""

    exit_code = EXIT_DISK


class TopicError(RefusedError):
    """A topic is missing, or is being recreated."""

    exit_code = EXIT_ERROR


class UnsoundTopicError(TopicError):
    """A topic is configured in a way that would break exactly-once processing."""

    exit_code = EXIT_REFUSED


class RecordError(NeardupError):
    """A record of an internal topic cannot be decoded; the message names topic and offset."""

    exit_code = EXIT_REFUSED


class RecordVersionError(RecordError):
    """A record has the layout of another version; the message names topic, offset and both versions."""


class FingerprintFileError(NeardupError):
    """A file of fingerprints is damaged, truncated, or not of the format that its name says; the message
    names the file."""


class RowsError(NeardupError):
    """A directory of fingerprinted pages is damaged, incomplete, or has files that are not its own; the
    message names the file."""

    exit_code = EXIT_REFUSED


class OutputError(NeardupError):
    """A file or stdout cannot be written completely; the message names it."""


class ClosedPipeError(OutputError):
    """The reader of a command's output closed the pipe: the command ends quietly."""

    exit_code = 128 + 13  # what a shell reports for other tools, which end by SIGPIPE


class BrokerError(NeardupError):
    """No broker can be reached or started; the message says what was tried."""


class OpenTransactionError(BrokerError):
    """An open transaction hides the end of a log; the message names topic, partition and offset."""


class SecurityError(BrokerError):
    """Authentication with a broker failed, in either direction; the message names the option."""

    exit_code = EXIT_REFUSED


class AccessError(NeardupError):
    """The broker denies an operation because an ACL is missing; the message names the resource."""

    exit_code = EXIT_REFUSED


class ChildError(NeardupError):
    """A fingerprinting process cannot be started. The cause is the environment, not a page."""


class RoleRefusedError(RefusedError):
    """A supervised role refused to start; the last line of its log says why."""


class CrawlError(NeardupError):
    """The demo's crawl cannot be downloaded; the message says what was tried."""


class PortTakenError(NeardupError):
    """The address for metrics and health is in use or invalid; the message names the options."""


class PageError(NeardupError):
    """A crawled page cannot be fingerprinted.

    `reason` is a short, stable code that becomes the verdict's `reason`; the message has the details.
    """

    def __init__(self, reason: str, detail: str = "") -> None:
        super().__init__(f"{reason}: {detail}" if detail else reason)
        self.reason = reason
        self.detail = detail


@contextmanager
def attributed_to(place: str) -> Iterator[None]:
    """Begin the message of a SettingsError of this block, or function, with the place whose fault it is."""
    try:
        yield
    except SettingsError as error:
        raise SettingsError(f"{place}: {error}") from None
