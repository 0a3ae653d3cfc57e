"""Objects that own Kafka clients while they are entered."""

from __future__ import annotations

import abc
from contextlib import AsyncExitStack
from types import TracebackType
from typing import Self


class ClientOwner(abc.ABC):
    """An asynchronous context manager that opens several others: all of them, or none stays open."""

    @abc.abstractmethod
    async def _open(self, stack: AsyncExitStack) -> None:
        """Enter what is needed into the stack."""

    async def __aenter__(self) -> Self:
        async with AsyncExitStack() as stack:
            await self._open(stack)
            self._opened = stack.pop_all()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._opened.aclose()
