"""Logs, metrics and health of the roles, as operators see them."""
