"""What a device sends of what its camera gives, and how it knows its link and the age of what it shows.

No family to choose from: one way, the same in devices and in the lab's emulated ones. Knows nothing of sockets.
"""
