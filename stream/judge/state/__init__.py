"""What the judge remembers between batches, in a RocksDB: pages, baselines of URLs, offsets of sources, which
pages have not expired, and what is to be erased."""
