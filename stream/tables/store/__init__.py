"""The RocksDB of a state directory: reads, writes, flushes, damage and scrubs."""
