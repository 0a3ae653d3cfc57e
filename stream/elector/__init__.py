"""Which page of each cluster is kept: a function of journal and decisions, without Kafka.

`Elector.apply` follows decisions; `due` says what is to be told, and `tell` notes that it was told.
"""
