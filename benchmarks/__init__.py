"""Benchmarks: each module is a program (`scripts/bench NAME`) that runs its subject side by side with what it is
compared to.
"""
