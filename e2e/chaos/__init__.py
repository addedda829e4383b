"""Faults on whole clusters: real node processes in network namespaces, a workload that proves itself, a checker.

`faults` says what can be done, `schedule` draws it from a seed, `world` does it, `workload` writes and reads meanwhile,
`verdict` compares what was acknowledged and seen with what the log holds in the end, and `run` puts them in order.
"""
