"""Says what should have come out, and holds it against what did; imports nothing of `stream`."""
