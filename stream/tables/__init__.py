"""The index of anchors: finds candidates, which share a probed prefix with a page, in RAM and in RocksDB."""
