"""Every error a user can meet. Each message says which option, topic or record is at fault."""


class NeardupError(Exception):
    """Base of all errors raised on purpose by this package."""


class SettingsError(NeardupError):
    """An option is missing, malformed or contradicts another one; the message names it."""


class RefusedError(NeardupError):
    """Start is refused because going on could make verdicts wrong; nothing was written."""


class SchemeMismatchError(RefusedError):
    """Fingerprints of one scheme met a journal, state directory or index of another."""


class StateError(RefusedError):
    """A state directory belongs to another cluster or journal, or is ahead of the decisions."""


class TopicError(RefusedError):
    """A topic is missing, or its configuration would break exactly-once."""


class RecordError(NeardupError):
    """A record of one of our own topics does not decode; the message names topic and offset."""


class IndexFileError(NeardupError):
    """A file of fingerprints is damaged, cut off, or not what its name says; the message names it."""


class BrokerError(NeardupError):
    """No broker could be reached or started; the message says what was tried."""


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
