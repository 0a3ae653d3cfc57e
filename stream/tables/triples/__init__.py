"""Triples of minima: the buckets that anchors enter in place of full pairs."""
