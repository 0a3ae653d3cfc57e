"""Roles on Kafka: the thin shells that move bytes between topics, exactly once, one room each."""
