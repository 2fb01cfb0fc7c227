"""Tests of benchmarks: what they measure with does what it should."""
