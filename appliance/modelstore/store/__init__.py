"""The state folder: a database and content-addressed blobs, written so that a crash at any instant loses nothing
acknowledged.
"""
