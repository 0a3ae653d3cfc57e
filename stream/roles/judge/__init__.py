"""The judge on Kafka: journal -> verdicts and decisions, exactly once (rules 7 to 15)."""
