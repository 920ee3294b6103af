"""Benchmarks: every figure stands beside a rival that ran in the same process or run."""
