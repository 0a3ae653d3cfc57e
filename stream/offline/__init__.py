"""Offline use of fingerprints: matching a batch against a corpus, compressed files, planning of tables."""
