"""Sessions' frames on their way in and out: the WebSocket of a session, and plain requests that belong to one."""
