"""The elector role: tells which page of each cluster is kept. It decides nothing."""
