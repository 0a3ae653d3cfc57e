"""Runs: frozen anchors in RocksDB, sorted by bucket, and their filters in RAM."""
