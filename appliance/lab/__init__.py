"""What the box would do: single decisions on written problems, and whole scenarios in virtual time, by the very engine
and policies of the running box. No API, no store.
"""
