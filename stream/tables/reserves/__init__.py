"""Reserves: the buckets that anchors enter in place of full ones."""
