"""Producers whose records appear together or not at all, and which fence an earlier process of their id."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from typing import Any, Final

from aiokafka.errors import IllegalOperation, InvalidTxnState

from stream.kafka import clients
from stream.kafka.aiokafka_internals import transaction_error
from stream.kafka.client_owner import ClientOwner
from stream.settings import Settings

ABORT_SECONDS: Final = 5.0
RETRY_MS: Final = 20
"""Retry interval. A broker refuses records for some milliseconds while it ends the previous transaction."""
_ENDED: Final = (IllegalOperation, InvalidTxnState)
"""Raised for a transaction that another error ended before. The second comes from a broker: when one topic is
refused, aiokafka still sends the waiting records of the others."""


class TransactionalProducer(ClientOwner):
    """Entering it fences earlier ones of its id and aborts their open transaction."""

    def __init__(self, settings: Settings, transactional_id: str, topic: str, **options: Any) -> None:
        """`topic` names its transactions in errors."""
        self._settings, self._topic = settings, topic
        self._options = options | {"transactional_id": transactional_id}

    async def _open(self, stack: AsyncExitStack) -> None:
        self._producer = clients.producer(
            self._settings,
            enable_idempotence=True,
            acks="all",
            linger_ms=0,
            compression_type="zstd",
            transaction_timeout_ms=60_000,
            retry_backoff_ms=RETRY_MS,
            **self._options,
        )
        await stack.enter_async_context(clients.open_client(self._settings, self._producer, patiently=True))

    @asynccontextmanager
    async def _transaction(self) -> AsyncIterator[None]:
        """Begin a transaction, and commit it. aiokafka commits one even if a send failed: await all of them
        within (rule 10).

        On an error the caller must end. The next producer aborts the transaction if it is still open.
        """
        await self._producer.begin_transaction()
        try:
            async with clients.acknowledgement_limit(f"transaction of topic {self._topic}"):
                yield
                await self._producer.commit_transaction()
        except BaseException as error:
            cause = transaction_error(self._producer) if isinstance(error, _ENDED) else None
            with suppress(Exception):
                await asyncio.wait_for(self._producer.abort_transaction(), ABORT_SECONDS)
            if cause is not None:
                raise cause from error
            raise
