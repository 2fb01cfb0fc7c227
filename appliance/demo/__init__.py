"""The demo: real networks and real inputs from packages, a fleet of processes that stand for devices, and the board
that shows what they get.
"""
