"""Benchmarks of Walrus: each figure beside the limit of the machine, taken in the same run."""
