"""Benchmarks: figures, each with a reference from the same run. `make bench` runs them."""
