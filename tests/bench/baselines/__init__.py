"""What a user would write without us, kept short and fair: the other side of the benchmarks."""
