"""Other programs' items -> page messages. Each needs an extra."""
