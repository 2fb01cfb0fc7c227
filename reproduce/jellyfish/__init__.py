"""Jellyfish's experiments (RTSS 2022, §VI) on an emulated box."""
