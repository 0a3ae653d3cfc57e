"""Bytes on our own topics <-> values: journal records, decisions, verdicts. Contracts: `schemas/`."""
