"""A Kafka broker for demo and tests: an existing one, an embedded one or one in Docker."""
