"""Offline use of fingerprints: matching a batch against a corpus, index files, planning of tables."""
