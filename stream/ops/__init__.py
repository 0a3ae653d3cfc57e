"""What operators see: logs now, metrics and health beside them."""
