"""Checkpoints of states in a directory or object store: made, pruned, verified and restored."""
