"""Devices of a scenario in virtual time: their links, what they send, and what they show."""
