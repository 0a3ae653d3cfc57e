"""What page messages refer to: records of web archives (claim checks) and schemas of a registry."""
