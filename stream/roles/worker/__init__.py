"""The worker: pages -> journal, at least once (rules 1 to 6)."""
