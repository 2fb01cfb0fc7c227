"""Boxes on the local network tell of themselves and are found (DNS-SD over multicast DNS, `_inference._tcp`). A hint
for people, never a reason to trust: anybody can say anything there.
"""
