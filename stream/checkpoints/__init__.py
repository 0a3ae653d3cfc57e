"""Checkpoints of a judge's state in a directory or object store: made, pruned, verified and restored."""
