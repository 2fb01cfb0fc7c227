"""The command line.

Empty on purpose: a device process of the demo imports a module below without paying for the rest.
"""
