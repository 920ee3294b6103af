"""Benchmarks of what comes out rather than of how fast it does."""
