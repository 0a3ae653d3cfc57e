"""One search through all tiers: probes, queries, pairs and the result."""
