"""Benchmarks of Walrus. Every figure is taken beside the machine's own limit, in the same run, and quoted as a ratio to it."""
