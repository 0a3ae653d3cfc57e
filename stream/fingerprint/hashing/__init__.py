"""Features -> hashes of 32, 64 or 128 bits: one file a function, loaded only where a scheme selects it."""
