"""Where the objects of an older result are now: pictures in, boxes out. Knows no box, no session and no clock."""
