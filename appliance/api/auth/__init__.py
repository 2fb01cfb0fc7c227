"""Who is asking: keys, their roles, and the first key of a box."""
