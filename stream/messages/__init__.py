"""Bytes on topics <-> values: pages, journal records, decisions, verdicts. Contracts: `schemas/`."""
