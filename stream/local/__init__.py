"""What works without Kafka: the embedded index, scans of files, and fingerprinted corpora."""
