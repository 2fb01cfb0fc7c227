"""A device's session as it is asked for, and the box's word on it: over plain HTTP, before and after the stream.

By `urllib`: these are two requests a stay, and the client's httpx would be a tenth of a device's memory.
"""

import json
import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any
from urllib.error import HTTPError, URLError
from urllib.parse import urlsplit, urlunsplit
from urllib.request import HTTPSHandler, ProxyHandler, Request, build_opener

from appliance.client.errors import TRIES, NoAnswer, failure_of, problem_in
from appliance.client.trust import trusted

TIMEOUT_S = 10.0


@dataclass(frozen=True, slots=True)
class Latency:
    """`rate_rps` frames a second, each answered within `slo_ms` of its capture."""

    slo_ms: float
    rate_rps: float
    accuracy_min: float | None = None

    def order(self) -> dict[str, Any]:
        """As the box is asked."""
        least = {} if self.accuracy_min is None else {"accuracy_min": self.accuracy_min}
        return {"kind": "latency", "slo_ms": self.slo_ms, "rate_rps": self.rate_rps, **least}


@dataclass(frozen=True, slots=True)
class Accuracy:
    """What is shown is at most `drop_max` (a share of 1) worse than fresh results, on average."""

    drop_max: float
    reference: str = "fresh"

    def order(self) -> dict[str, Any]:
        """As the box is asked."""
        return {"kind": "accuracy", "drop_max": self.drop_max, "reference": self.reference}


Promise = Latency | Accuracy


@dataclass(frozen=True)
class Box:
    """Where the box is, and the key that it knows the device by."""

    url: str
    key: str | None = None
    tenant: str | None = None
    """Whom an admin's key acts for; None: the key's own tenant."""
    ca: Path | str | None = None
    """PEM file of the authority behind its certificate; None: those of the machine."""
    fingerprint: str | None = None
    """SHA-256 of that authority, for whom has no file (`client/trust.py`): as in the QR code of a key."""

    @property
    def headers(self) -> dict[str, str]:
        """Of every request."""
        key = {"Authorization": f"Bearer {self.key}"} if self.key else {}
        return key | ({"X-Tenant": self.tenant} if self.tenant else {})

    def begin(self, order: Mapping[str, Any]) -> dict[str, Any]:
        """Ask for a session, once: asked again after a time-out the box might begin two.

        Raises: ApplianceError (PromiseNotPossible tells the cause and what would be possible), UnexpectedAnswer,
        NoAnswer (a time-out), OSError (nothing is at the address).
        """
        return self._asked("POST", "/v1/sessions", dict(order))

    def shown(self, session: str) -> dict[str, Any]:
        """The session with its counts, as the box has them; asked again after a time-out. Raises: as `begin`."""
        return self._asked("GET", f"/v1/sessions/{session}", tries=TRIES)

    def end(self, session: str) -> None:
        """Leave; asked again after a time-out. Raises: as `begin`."""
        self._asked("DELETE", f"/v1/sessions/{session}", tries=TRIES)

    def stream_url(self, session: str, seen: int | None) -> str:
        """Where the stream is; `seen`: the frame up to which all ends are known."""
        parts = urlsplit(self.url)
        scheme = "wss" if parts.scheme == "https" else "ws"
        path = f"{parts.path.rstrip('/')}/v1/sessions/{session}/stream"
        return urlunsplit((scheme, parts.netloc, path, "" if seen is None else f"seen={seen}", ""))

    @cached_property
    def trust(self) -> ssl.SSLContext | None:
        """The TLS context; None without TLS. Raises: UnknownBox, OSError."""
        if not self.url.startswith("https") and self.fingerprint is None:
            return None
        return trusted(self.ca, url=self.url, fingerprint=self.fingerprint)

    def _asked(
        self, method: str, path: str, content: Mapping[str, Any] | None = None, *, tries: int = 1
    ) -> dict[str, Any]:
        for _ in range(tries):
            try:
                return self._asked_once(method, path, content)
            except TimeoutError:
                pass
            except URLError as error:  # while it connected or sent
                if not isinstance(error.reason, TimeoutError):
                    raise
        raise NoAnswer(self.url, tries * TIMEOUT_S)

    def _asked_once(self, method: str, path: str, content: Mapping[str, Any] | None) -> dict[str, Any]:
        body = None if content is None else json.dumps(content).encode()
        headers = self.headers | ({} if body is None else {"content-type": "application/json"})
        request = Request(self.url.rstrip("/") + path, body, headers, method=method)
        # A box stands in the same network: no proxy.
        opener = build_opener(ProxyHandler({}), HTTPSHandler(context=self.trust))
        try:
            with opener.open(request, timeout=TIMEOUT_S) as response:
                answer = response.read()
        except HTTPError as error:
            text = error.read()
            raise failure_of(problem_in(text), error.code, text[:200].decode(errors="replace")) from None
        return problem_in(answer)
