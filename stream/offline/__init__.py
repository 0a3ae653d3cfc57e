"""Fingerprints without a stream: matching a batch against a corpus, index files, planning."""
