"""64-bit fingerprints -> candidates: anchors that share a probed prefix, in RAM and in RocksDB."""
