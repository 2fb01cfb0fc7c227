"""The addresses at which sessions begin and stream."""

JOINS = "/v1/sessions"
_BEFORE, _BEHIND = "/v1/sessions/", "/stream"


def is_stream(target: bytes) -> bool:
    """Whether a request's target is the stream of a session."""
    path = target.partition(b"?")[0].decode("latin-1")
    return path.startswith(_BEFORE) and path.endswith(_BEHIND) and "/" not in id_of(path)


def id_of(path: str) -> str:
    """The session that a stream's path names."""
    return path[len(_BEFORE) : -len(_BEHIND)]
