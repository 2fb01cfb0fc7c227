"""Pages of other origins that may read answers of the box (CORS). They send a key; cookies are for its own pages."""

from collections.abc import Iterable, Mapping
from typing import Any

Headers = list[tuple[bytes, bytes]]
_EXPOSED = b"location, retry-after, x-request-id, inference-header-content-length"
_PREFLIGHT = (
    (b"access-control-allow-methods", b"GET, HEAD, POST, PATCH, PUT, DELETE"),
    (b"access-control-allow-headers", b"*, authorization"),
    (b"access-control-max-age", b"600"),
)


class Origins:
    """The origins whose pages may read answers."""

    def __init__(self, named: Iterable[str] = ()) -> None:
        """`named`: such as `https://app.example.org`, or `*` for all."""
        self._named = frozenset(one.lower().rstrip("/").encode() for one in named)

    def headers(self, scope: Mapping[str, Any]) -> Headers:
        """Return the headers that let the page read the answer; none where no page asks, or one of another origin."""
        origin = _first(scope, b"origin") if self._named else b""
        if not origin or not (b"*" in self._named or origin.lower() in self._named):
            return []
        allowed = b"*" if b"*" in self._named else origin
        return [
            (b"access-control-allow-origin", allowed),
            (b"access-control-expose-headers", _EXPOSED),
            (b"vary", b"Origin"),
        ]

    def preflight(self, scope: Mapping[str, Any]) -> Headers | None:
        """Return the headers, beside those of `headers`, that let a page send a request for which its browser asks
        first (`OPTIONS`); None: the request is another one, or the page may not.
        """
        is_asked = scope["method"] == "OPTIONS" and _first(scope, b"access-control-request-method")
        return list(_PREFLIGHT) if is_asked and self.headers(scope) else None


def _first(scope: Mapping[str, Any], wanted: bytes) -> bytes:
    return next((bytes(value) for name, value in scope["headers"] if name == wanted), b"")
