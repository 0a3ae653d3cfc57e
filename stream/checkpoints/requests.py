"""Requests for a checkpoint now, from a command to the role that has the state directory open.

They are files beside the directory, so whoever may write there may ask.
"""

from __future__ import annotations

import secrets
from contextlib import suppress
from pathlib import Path

import msgspec

from stream.output import writing


class CheckpointAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """What the role answers."""

    request: str
    checkpoint: str | None = None
    """Name of the newest checkpoint, which has all that was applied at the time of the request."""
    error: str | None = None
    """Why there is none."""


class CheckpointRequests:
    """The requests for checkpoints of one state directory. Only the last one is answered."""

    def __init__(self, directory: Path) -> None:
        self._request = directory.with_suffix(".checkpoint-request")
        self._answer = directory.with_suffix(".checkpoint-answer")

    def ask(self) -> str:
        """Make a request, and return its id. Raises OutputError."""
        request = secrets.token_hex(16)
        with writing(self._request) as file:
            file.write(request.encode())
        return request

    def answer_to(self, request: str) -> CheckpointAnswer | None:
        """Return the answer to a request, if there is one yet."""
        with suppress(OSError, msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            answer = msgspec.json.decode(self._answer.read_bytes(), type=CheckpointAnswer)
            if answer.request == request:
                return answer
        return None

    def withdraw(self) -> None:
        """Remove request and answer."""
        self._request.unlink(missing_ok=True)
        self._answer.unlink(missing_ok=True)

    def waiting(self) -> str | None:
        """Return the request that waits for an answer."""
        try:
            return self._request.read_text("ascii", "replace")
        except OSError:
            return None

    def answer(self, answer: CheckpointAnswer) -> None:
        """Answer a request. Raises OutputError."""
        with writing(self._answer) as file:
            file.write(msgspec.json.encode(answer))
        if self.waiting() == answer.request:
            self._request.unlink(missing_ok=True)
