"""What every role needs of Kafka: clients, topics, the genesis, readers and the follower of decisions."""
