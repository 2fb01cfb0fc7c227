"""Guards: processes that hold the builds of one tenant each and run them, so that what an uploaded graph does, it does
to itself.
"""
