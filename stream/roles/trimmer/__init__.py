"""The trimmer: deletes the beginning of decisions and journal that checkpoints replace."""
