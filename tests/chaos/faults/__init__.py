"""What can go wrong, by kind."""

from __future__ import annotations

from typing import Final

from tests.chaos.faults import brokers, network, processes, requests, state, topics, transactions
from tests.chaos.scene import Fault

FAULTS: Final[dict[str, Fault]] = {
    **processes.FAULTS, **state.FAULTS, **brokers.FAULTS, **network.FAULTS, **topics.FAULTS,
    **requests.FAULTS, **transactions.FAULTS,
}  # fmt: skip
"""The function of each kind of `tests.chaos.schedule`."""
