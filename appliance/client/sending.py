"""What all of the client's methods stand on: one connection pool, shapes in and out, errors as the classes they were on
the box.
"""

import json
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from types import MappingProxyType, TracebackType
from typing import Any, Self, TypeVar

import httpx

from appliance.client.errors import TRIES, raise_for
from appliance.client.sse import ServerEvent, events
from appliance.client.trust import trusted
from appliance.wire.shape import Shape

S = TypeVar("S", bound=Shape)
TIMEOUT = httpx.Timeout(60.0, connect=5.0)
JSON = {"content-type": "application/json"}
BYTES = "application/octet-stream"
NO_QUERY: Mapping[str, str] = MappingProxyType({})


def listing(*, every_tenant: bool = False, summary: bool = False) -> dict[str, str]:
    """What a list is asked for beside its pages."""
    return {**({"tenant": "*"} if every_tenant else {}), **({"summary": "true"} if summary else {})}


class Sending:
    """One box, one key. Use it in a `with` block, or `close` it."""

    def __init__(
        self,
        url: str,
        key: str | None = None,
        *,
        tenant: str | None = None,
        ca: Path | str | None = None,
        fingerprint: str | None = None,
        timeout_s: float | None = None,
        transport: httpx.BaseTransport | None = None,
    ) -> None:
        """`ca`: PEM file of the authority behind the box's certificate. `fingerprint`: of that authority, for whom has
        no file (`client/trust.py`); the box is asked for it here. Raises: UnknownBox, OSError.
        """
        headers = {}
        if key:
            headers["Authorization"] = f"Bearer {key}"
        if tenant:
            headers["X-Tenant"] = tenant
        self._http = httpx.Client(
            base_url=url.rstrip("/"),
            headers=headers,
            timeout=TIMEOUT if timeout_s is None else timeout_s,
            verify=True if ca is None and fingerprint is None else trusted(ca, url=url, fingerprint=fingerprint),
            trust_env=False,  # a box stands in the same network: no proxy, no .netrc
            transport=transport,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Let go of the connections."""
        self._http.close()

    # -- for those that derive from it ---------------------------------------------------------------------------------

    def _ask(
        self,
        path: str,
        media: bytes | Path | Mapping[str, Any],
        content_type: str,
        query: Mapping[str, object],
        headers: Mapping[str, str] = NO_QUERY,
    ) -> bytes:
        """The answer to media: a file, its bytes, or a JSON object."""
        if isinstance(media, Mapping):
            media, content_type = json.dumps(media).encode(), "application/json"
        response = self._send(
            "POST",
            path,
            content=media.read_bytes() if isinstance(media, Path) else media,
            headers={"content-type": content_type, **headers},
            params={name: _text(value) for name, value in query.items() if value is not None},
        )
        return response.content

    def _send(self, method: str, path: str, **options: Any) -> httpx.Response:
        """The answer. What only reads is asked again after a time-out. Raises: as the methods of a client."""
        for _ in range(TRIES - 1 if method == "GET" else 0):
            with suppress(httpx.ReadTimeout, httpx.WriteTimeout):
                return self._answered(method, path, **options)
        return self._answered(method, path, **options)

    def _answered(self, method: str, path: str, **options: Any) -> httpx.Response:
        response = self._http.request(method, path, **options)
        raise_for(response)
        return response

    def _get(self, path: str, shape: type[S]) -> S:
        return shape.model_validate_json(self._send("GET", path).content)

    def _post(self, path: str, content: str, shape: type[S]) -> S:
        return shape.model_validate_json(self._send("POST", path, content=content, headers=JSON).content)

    def _pages(self, path: str, shape: type[S], query: Mapping[str, str] = NO_QUERY) -> Iterator[S]:
        """Every item of a list, page by page as they are wanted."""
        cursor: str | None = ""
        while cursor is not None:
            page = self._send("GET", path, params={**query, "cursor": cursor}).json()
            yield from (shape.model_validate(item) for item in page["items"])
            cursor = page["next_cursor"]

    def _events(self, path: str, params: Mapping[str, str | list[str]]) -> Iterator[ServerEvent]:
        with self._http.stream("GET", path, params=params, timeout=httpx.Timeout(60.0, connect=5.0)) as response:
            if not response.is_success:
                response.read()
            raise_for(response)
            yield from events(response.iter_lines())


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
