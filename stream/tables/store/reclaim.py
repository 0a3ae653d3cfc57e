"""Removes keys and frees the disk space of removed ones, in the background of the judge."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor

from stream.failpoints import reach
from stream.tables.store.rocks import Store


class Reclaiming:
    """Removes keys and frees the disk space of removed ones, in a thread of its own."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._thread = ThreadPoolExecutor(1, "reclaim")
        self._under_way: list[Future[None]] = []
        self._closed = False

    def begin(self, family: str, bounds: tuple[bytes, bytes], failpoint: str) -> None:
        """Start to free the space of the removed keys [bounds[0], bounds[1]) of a family. `failpoint` is
        reached before."""
        self._submit(self._store.reclaim, family, bounds, failpoint)

    def remove(self, family: str, bounds: tuple[bytes, bytes], failpoint: str) -> None:
        """Start to remove the keys [bounds[0], bounds[1]) of a family, and to free their space, by
        `Store.remove`. `failpoint` is reached before."""
        self._submit(self._store.remove, family, bounds, failpoint)

    def _submit(
        self,
        act: Callable[[str, bytes, bytes], None],
        family: str,
        bounds: tuple[bytes, bytes],
        failpoint: str,
    ) -> None:
        def run() -> None:
            if not self._closed:
                reach(failpoint)
                act(family, *bounds)

        self._under_way.append(self._thread.submit(run))

    def check(self, *, wait: bool) -> None:
        """Raise what reclaiming has raised. With `wait`, waits until it is done."""
        for ended in [each for each in self._under_way if wait or each.done()]:
            self._under_way.remove(ended)
            ended.result()

    def give_up(self) -> None:
        """Start nothing further."""
        self._closed = True

    def close(self) -> None:
        """Wait for what is under way."""
        self._closed = True
        self._thread.shutdown(cancel_futures=True)
