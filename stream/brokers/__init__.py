"""A local Kafka broker for demo and tests: named, embedded or in Docker."""
