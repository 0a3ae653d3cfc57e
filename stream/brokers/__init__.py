"""A Kafka broker for demo, tests and `neardup broker`: an existing one, an embedded one or one in Docker."""
