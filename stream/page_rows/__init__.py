"""Page messages into rows: read, extracted, fingerprinted, or rejected with a reason."""
