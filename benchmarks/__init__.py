"""Benchmarks against optax, as ratios of medians from interleaved rounds in one process."""
