"""Events of the roles -> what operators see: logs."""
