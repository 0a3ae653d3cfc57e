"""A Kafka cluster of real brokers, and a network between it and its clients that can be cut."""
