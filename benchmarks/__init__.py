"""Benchmarks: each module without an underscore is a program, `scripts/bench NAME`."""
