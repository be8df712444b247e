"""Benchmarks that a user can run on their own machine; each module has a main."""
