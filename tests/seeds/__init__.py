"""What the seeds derive SimHash and MinHash from, written plainly: references for tests."""
