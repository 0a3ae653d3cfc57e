"""Events of the roles -> what operators see: logs now, metrics and health beside them."""
