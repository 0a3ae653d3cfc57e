"""The hot tier: the newest anchors in RAM, as chained hash tables."""
