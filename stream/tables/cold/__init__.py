"""The cold tier: runs of anchors in RocksDB, and how they are built."""
