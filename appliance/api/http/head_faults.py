"""Heads that the parser takes and HTTP does not (RFC 9110, RFC 9112)."""

from collections.abc import Sequence

from appliance.api.http.exchange import BLANKS

VERSIONS = ("1.0", "1.1")


def head_fault(version: str, headers: Sequence[tuple[bytes, bytes]]) -> tuple[str, str] | None:
    """Return the slug and the detail of the problem that a request's head has; None: it has none."""
    if version not in VERSIONS:
        return "bad-request", "only versions 1.0 and 1.1 of HTTP are read"
    hosts = 0
    for name, value in headers:  # a loop: every head that is parsed comes by
        if name == b"host":
            hosts += 1
        elif name == b"transfer-encoding" and value.strip(BLANKS).lower() != b"chunked":
            return "not-implemented", "of Transfer-Encoding only chunked is read"
        elif name == b"expect" and version == "1.1" and value.strip(BLANKS).lower() != b"100-continue":
            return "expectation-failed", "of Expect only 100-continue can be met"
    if hosts > 1 or (hosts == 0 and version == "1.1"):
        return "bad-request", "a request has one header Host"
    return None
