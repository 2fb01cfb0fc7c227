"""How many DLA cores there are at most, on every Jetson that has any."""

CORES_MAX = 2
