"""Heads of requests that HTTP forbids (RFC 9110, RFC 9112), though the parser takes them."""

from collections.abc import Sequence

from appliance.api.http.exchange import BLANKS

VERSIONS = ("1.0", "1.1")


def head_fault(version: str, headers: Sequence[tuple[bytes, bytes]]) -> tuple[str, str] | None:
    """Return the slug and the detail of the problem with a request's head; None: there is none."""
    if version not in VERSIONS:
        return "bad-request", "no version of HTTP but 1.0 and 1.1 is read"
    hosts = 0
    for name, value in headers:  # one pass: this is done for every head that is parsed
        if name == b"host":
            hosts += 1
        elif name == b"transfer-encoding" and value.strip(BLANKS).lower() != b"chunked":
            return "not-implemented", "chunked is the only Transfer-Encoding that is read"
        elif name == b"expect" and version == "1.1" and value.strip(BLANKS).lower() != b"100-continue":
            return "expectation-failed", "100-continue is the only Expect that can be met"
    if hosts > 1 or (hosts == 0 and version == "1.1"):
        return "bad-request", "a request must have exactly one header Host"
    return None
