"""Every error a user can meet. Each message says which option, topic or record is at fault."""

from __future__ import annotations

from typing import ClassVar, Final

EXIT_ERROR: Final = 2
EXIT_DISK: Final = 74
"""EX_IOERR of sysexits.h: a disk is full or fails. Starting again goes well once that has been mended."""
EXIT_REFUSED: Final = 78
"""EX_CONFIG of sysexits.h: starting again as things are would end in the same way; a person must act."""


class NeardupError(Exception):
    """Base of all errors raised on purpose by this package."""

    exit_code: ClassVar[int] = EXIT_ERROR
    """What a role that dies of it ends with. Any other than EXIT_REFUSED asks to be started again."""


class SettingsError(NeardupError):
    """An option is missing, malformed or contradicts another one; the message names it."""

    exit_code = EXIT_REFUSED


class RefusedError(NeardupError):
    """Start is refused because going on could make verdicts wrong; nothing was written."""

    exit_code = EXIT_REFUSED


class StaleError(RefusedError):
    """What a process began with no longer holds; starting again is the cure."""

    exit_code = EXIT_ERROR


class SchemeMismatchError(RefusedError):
    """Fingerprints of one scheme met a journal, state directory or index of another."""


class StateError(RefusedError):
    """A state directory belongs to another cluster or journal, or is ahead of the decisions."""


class StateBusyError(StateError):
    """A state directory is in use, or work on it was killed: it may go well the next time."""

    exit_code = EXIT_ERROR


class DamagedStateError(StateError):
    """A state directory is not as it was written; the message names the file and the cure."""


class DiskError(NeardupError):
    """A disk is full or fails; the message names the directory."""

    exit_code = EXIT_DISK


class TopicError(RefusedError):
    """A topic is missing, or about to be made again."""

    exit_code = EXIT_ERROR


class UnsoundTopicError(TopicError):
    """A topic's configuration would break exactly-once."""

    exit_code = EXIT_REFUSED


class RecordError(NeardupError):
    """A record of one of our own topics does not decode; the message names topic and offset."""

    exit_code = EXIT_REFUSED


class IndexFileError(NeardupError):
    """A file of fingerprints is damaged, cut off, or not what its name says; the message names it."""


class OutputError(NeardupError):
    """A file or stdout cannot be written, or not to its end; the message names it."""


class ClosedPipeError(OutputError):
    """Whoever read what a command writes has stopped reading: a reason to end, and no error."""

    exit_code = 128 + 13  # as a shell names the end by SIGPIPE, which other tools come to


class BrokerError(NeardupError):
    """No broker could be reached or started; the message says what was tried."""


class SecurityError(BrokerError):
    """The broker does not trust us, or we do not trust it; the message names the option."""

    exit_code = EXIT_REFUSED


class AccessError(NeardupError):
    """The broker knows us and refuses something: an ACL is missing; the message names the resource."""

    exit_code = EXIT_REFUSED


class ChildError(NeardupError):
    """A fingerprinting process cannot be started: the environment is at fault, not a page."""


class RoleRefusedError(RefusedError):
    """A supervised role cannot run as things are; its own last words say why."""


class CrawlError(NeardupError):
    """The demonstration's pages could not be fetched; the message says what was tried."""


class PortTakenError(NeardupError):
    """The address for metrics and health cannot be had; the message names the options."""


class PageError(NeardupError):
    """A crawled page cannot be fingerprinted.

    `reason` is a short stable code (it becomes the verdict's `reason`); the message has the details.
    """

    def __init__(self, reason: str, detail: str = "") -> None:
        super().__init__(f"{reason}: {detail}" if detail else reason)
        self.reason = reason
        self.detail = detail
