"""The warm tier: anchors packed in RAM."""
