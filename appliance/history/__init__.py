"""What the box remembers of itself: series of figures over 24 hours and 30 days, and who was in memory when.

A file of its own in the state folder, written once a minute. Nothing that serves depends on it: a file that is damaged
is moved aside, a disk that is full costs the minutes that could not be written.
"""
