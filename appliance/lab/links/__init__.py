"""Emulated links between devices and a box: how fast they are over time, what they lose, and networks that go over
them.
"""
