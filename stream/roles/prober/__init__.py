"""The prober role: answers about candidates among the sealed ranges of anchors that its group gives it.

Kafka's consumer group says who holds what (`membership`). Segments are loaded beside the work (`loading`),
`schedule` says what is answered next, and `role` has the loop: apply deaths, answer, send.
"""
