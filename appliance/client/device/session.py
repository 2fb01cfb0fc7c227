"""A device's session as it is asked for, and the box's word on it: over plain HTTP, before and after the stream."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit, urlunsplit

import httpx

from appliance.client.client import trust
from appliance.client.errors import raise_for

TIMEOUT = httpx.Timeout(10.0, connect=5.0)


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


@dataclass(frozen=True, slots=True)
class Box:
    """Where the box is, and the key that it knows the device by."""

    url: str
    key: str | None = None
    ca: str | None = None
    """PEM file of the authority behind its certificate; None: those of the machine."""

    @property
    def headers(self) -> dict[str, str]:
        """Of every request."""
        return {"Authorization": f"Bearer {self.key}"} if self.key else {}

    def begin(self, order: Mapping[str, Any]) -> dict[str, Any]:
        """Ask for a session. Raises: ApplianceError (PromiseNotPossible tells the cause and what would be possible),
        UnexpectedAnswer, httpx.TransportError.
        """
        return self._asked("POST", "/v1/sessions", json=dict(order))

    def shown(self, session: str) -> dict[str, Any]:
        """The session with its counts, as the box has them. Raises: as `begin`."""
        return self._asked("GET", f"/v1/sessions/{session}")

    def end(self, session: str) -> None:
        """Leave. Raises: as `begin`."""
        self._asked("DELETE", f"/v1/sessions/{session}")

    def stream_url(self, session: str, seen: int | None) -> str:
        """Where the stream is; `seen`: the frame up to which all ends are known."""
        parts = urlsplit(self.url)
        scheme = "wss" if parts.scheme == "https" else "ws"
        path = f"{parts.path.rstrip('/')}/v1/sessions/{session}/stream"
        return urlunsplit((scheme, parts.netloc, path, "" if seen is None else f"seen={seen}", ""))

    @property
    def trust(self) -> Any:
        """The TLS context of a stream; None without TLS."""
        if not self.url.startswith("https"):
            return None
        import ssl

        return ssl.create_default_context() if self.ca is None else trust(self.ca)

    def _asked(self, method: str, path: str, **content: Any) -> dict[str, Any]:
        response = httpx.request(
            method,
            self.url.rstrip("/") + path,
            headers=self.headers,
            timeout=TIMEOUT,
            verify=trust(self.ca),
            trust_env=False,  # a box stands in the same network: no proxy, no .netrc
            **content,
        )
        raise_for(response)
        said = response.json() if response.content else {}
        return said if isinstance(said, dict) else {}
