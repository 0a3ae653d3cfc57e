"""The state of the deployment as Kafka and its processes tell it: groups, lag, restarts."""
