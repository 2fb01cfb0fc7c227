"""Rules that bound what the box takes on: its budget of memory, who is let in, and what is given up as too late. There
is one rule for each, no choice of policies.
"""
