"""Takes back tables that a state directory has dropped, before it is opened."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from stream.errors import StateError
from stream.judge.rule import Rule
from stream.judge.state.meta import meta_of
from stream.messages.journal import Genesis
from stream.tables import taking_back
from stream.tables.store.anchors import HELD, first_anchor, held_from
from stream.tables.store.rocks import DEFAULT, Store, read_value

_CACHE: Final = 64 << 20


def take_back(directory: Path, genesis: Genesis, to: int) -> range:
    """Build the tables of the anchors from the number `to` on again, as far as they were dropped. Returns
    which anchors these are. Raises StateError."""
    rule = Rule(genesis.options, genesis.scheme)
    design = rule.design()
    if not (directory / "CURRENT").exists() or read_value(directory, DEFAULT, HELD) is None:
        return range(0)
    meta = meta_of(directory)
    if meta is None:
        return range(0)
    if meta.journal != genesis.journal:
        raise StateError(
            f"state directory {directory} belongs to journal {meta.journal}, not {genesis.journal}"
        )
    with Store(directory, design.tables + rule.triples, _CACHE) as store:
        before = held_from(store)
        taking_back.take_back(store, design, meta.generation, to, triples=rule.triples)
        return range(max(to, first_anchor(store)), before)
