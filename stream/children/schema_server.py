"""Fetches schemas for children, which have neither network nor credentials."""

from __future__ import annotations

import asyncio
import threading
from contextlib import suppress
from typing import Final

from stream.children.child import SchemaRequest, SchemaResponse
from stream.errors import PageError
from stream.pages.outside.errors import UnavailableError
from stream.pages.outside.schema import Registered
from stream.pages.outside.schema_registry import SECONDS, Registry

ANSWER_SECONDS: Final = 3 * SECONDS
"""Longest wait of a child for an answer, including the requests queued before it and all references."""


class SchemaServer:
    """Answers children's requests for schemas, one at a time, without blocking the event loop."""

    def __init__(self, registry: Registry | None) -> None:
        self._registry = registry
        self._one_at_a_time = asyncio.Lock()

    async def answer(self, request: SchemaRequest) -> SchemaResponse:
        """The schema, or why it is unavailable, within ANSWER_SECONDS."""
        if self._registry is None:
            refusal = f"schema id {request.number}, but no schema_registry_url is set"
            return SchemaResponse(Registered.from_error(PageError("unknown_schema", refusal)))
        try:
            async with asyncio.timeout(ANSWER_SECONDS), self._one_at_a_time:
                return await _beside_the_loop(self._registry, request.number)
        except TimeoutError:
            return SchemaResponse(
                unavailable=f"schema_registry_url: no schema {request.number} within {ANSWER_SECONDS:g} s"
            )


async def _beside_the_loop(registry: Registry, number: int) -> SchemaResponse:
    """Fetch a schema in a daemon thread. The loop's own executor would delay exit while the registry does not
    answer."""
    loop = asyncio.get_running_loop()
    response: asyncio.Future[SchemaResponse] = loop.create_future()

    def work() -> None:
        try:
            answer = SchemaResponse(registry.schema(number))
        except UnavailableError as error:
            answer = SchemaResponse(unavailable=str(error))
        except Exception as error:
            answer = SchemaResponse(unavailable=f"schema {number}: {type(error).__name__}: {error}")
        with suppress(RuntimeError):  # the loop has ended
            loop.call_soon_threadsafe(_answer, response, answer)

    threading.Thread(target=work, daemon=True).start()
    return await response


def _answer(response: asyncio.Future[SchemaResponse], answer: SchemaResponse) -> None:
    if not response.done():  # done if the caller has timed out
        response.set_result(answer)
