"""The life of a state directory: opened or refused, restored, kept up, moved aside, and erased from."""
