"""What verdicts are worth on real text: the truth, ours, the peers, and the picture."""
