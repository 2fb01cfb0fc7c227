"""Sends one HTTP request to a receiver within bounds of time and bytes.

The host name is resolved once for each message. The connection goes to a permitted address of that answer, so no later
DNS answer can lead elsewhere. Redirects are not followed, proxies of the environment are not used, and only the status
of the answer is read. An HTTP client would read all that a receiver sends before the status, and block the event
loop meanwhile.
"""

import asyncio
import re
import socket
import ssl
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from ipaddress import ip_network
from typing import Protocol

from appliance import __version__
from appliance.clock import Clock
from appliance.domain.notifications.messages import Post
from appliance.domain.notifications.networks import is_permitted
from appliance.domain.notifications.receivers import Destination, Outcome, SendResult

SEND_S_MAX = 10.0
"""Time limit of a message, with resolving and connecting."""
CONNECT_S_MAX = 4.0
ADDRESSES_MAX = 4
LOOKUPS_MAX = 8
"""Number of lookups of one tenant at once; a lookup may outlast its message."""
LINES_MAX = 100
"""Lines of an answer up to its status, where it begins with informational ones (1xx)."""
_STATUS = re.compile(rb"HTTP/1\.[01] ([1-9][0-9]{2})\b")
_CIPHERS = "@SECLEVEL=2:ECDH+AESGCM:ECDH+CHACHA20:ECDH+AES:!aNULL:!eNULL:!SHA1"
_GROUP = "prime256v1"
"""Of key exchange: every TLS 1.3 has it. A receiver that chose one of 8192 bits would hold the event loop for 0.2 s."""


class Names(Protocol):
    """Resolves host names."""

    def look_up(self, host: str, port: int, found: Callable[[Sequence[str] | OSError], None]) -> None:
        """Call `found` with the addresses of a name, or with the error, on any thread; does not block."""
        ...


class SystemNames:
    """Resolves names by the system, each in a daemon thread: an answer may take half a minute."""

    def look_up(self, host: str, port: int, found: Callable[[Sequence[str] | OSError], None]) -> None:
        def look() -> None:
            try:
                answers = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
                found(list(dict.fromkeys(str(answer[4][0]) for answer in answers)))
            except (OSError, UnicodeError) as error:
                found(OSError(str(error)))

        threading.Thread(target=look, name="look up a receiver", daemon=True).start()


class _NotPermitted(Exception):
    """The host name has only private addresses."""


class Sender:
    """Sends messages. Event-loop thread only."""

    def __init__(
        self, clock: Clock, private: Iterable[str] = (), names: Names | None = None, send_s_max: float = SEND_S_MAX
    ) -> None:
        """`private`: networks that are permitted beside the public internet."""
        self._clock, self._names, self._send_s_max = clock, names or SystemNames(), send_s_max
        self._private = [ip_network(one) for one in private]
        self._context: ssl.SSLContext | None = None
        self._lookups: Counter[str | None] = Counter()

    async def send(self, post: Post, tenant: str | None) -> SendResult:
        """Send a message for a tenant; errors become results."""
        try:
            async with asyncio.timeout(self._send_s_max):
                status = await self._status(post, tenant)
        except _NotPermitted:
            detail = "its address is private; the operator can permit its network (notifications.private_addresses)"
            return self._sent(Outcome.NOT_PERMITTED, detail)
        except TimeoutError:
            return self._sent(Outcome.TIMED_OUT, f"it did not answer within {self._send_s_max:g} s")
        except ssl.SSLCertVerificationError as error:
            return self._sent(Outcome.NOT_TRUSTED, f"its certificate cannot be verified: {error.verify_message}")
        except OSError as error:
            return self._sent(Outcome.UNREACHABLE, f"it cannot be reached: {error}")
        if 200 <= status < 300:
            return self._sent(Outcome.DELIVERED, f"it took the message (HTTP {status})", status)
        if 300 <= status < 400:
            return self._sent(Outcome.REDIRECTED, f"it names another address, which is not followed ({status})", status)
        return self._sent(Outcome.REFUSED, f"it refused the message (HTTP {status})", status)

    def _sent(self, outcome: Outcome, detail: str, status: int | None = None) -> SendResult:
        return SendResult(outcome, self._clock.wall_now(), detail, status)

    async def _status(self, post: Post, tenant: str | None) -> int:
        """Return the status of the answer. Raises: _NotPermitted, TimeoutError, OSError."""
        found = await self._addresses(post.destination, tenant)
        permitted = [one for one in found if is_permitted(one, self._private)][:ADDRESSES_MAX]
        if not permitted:
            raise _NotPermitted
        for address in permitted[:-1]:
            with suppress(ConnectionError):
                return await self._posted(post, address)
        return await self._posted(post, permitted[-1])

    async def _addresses(self, destination: Destination, tenant: str | None) -> Sequence[str]:
        """Return the addresses of a host name. Raises: OSError."""
        if self._lookups[tenant] >= LOOKUPS_MAX:
            raise OSError("names of other receivers are still looked up")
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[Sequence[str] | OSError] = loop.create_future()

        def ended(found: Sequence[str] | OSError) -> None:
            self._lookups[tenant] -= 1
            if not answer.done():
                answer.set_result(found)

        def found(result: Sequence[str] | OSError) -> None:
            with suppress(RuntimeError):  # the box has stopped meanwhile
                loop.call_soon_threadsafe(ended, result)

        self._lookups[tenant] += 1
        self._names.look_up(destination.host, destination.port, found)
        result = await answer
        if isinstance(result, OSError):
            raise result
        return result

    async def _posted(self, post: Post, address: str) -> int:
        """Send the request to the address, and return the status. Raises: ConnectionError (no connection), OSError."""
        if self._context is None:
            self._context = await asyncio.to_thread(_tls_context)
        is_tls, host, port, path = post.destination
        headers = {
            "Host": post.destination.origin.partition("://")[2],
            "User-Agent": f"edge-appliance/{__version__}",
            "Connection": "close",
            "Accept-Encoding": "identity",
            **post.headers,
            "Content-Length": len(post.body),
        }
        rows = [f"POST {path} HTTP/1.1", *(f"{name}: {value}" for name, value in headers.items()), "", ""]
        tls = (self._context, host) if is_tls else (None, None)
        try:
            async with asyncio.timeout(CONNECT_S_MAX):
                reader, writer = await asyncio.open_connection(address, port, ssl=tls[0], server_hostname=tls[1])
        except ssl.SSLError:
            raise
        except OSError as error:  # TimeoutError is one
            raise ConnectionError("nobody answers there") from error
        try:
            writer.write("\r\n".join(rows).encode("ascii") + post.body)
            return await _status_in(reader)
        except (ConnectionError, EOFError, asyncio.LimitOverrunError) as error:
            raise OSError("it does not answer in HTTP") from error
        finally:
            writer.transport.abort()


async def _status_in(reader: asyncio.StreamReader) -> int:
    """Return the status of an answer. Raises: OSError where it has none; EOFError, asyncio.LimitOverrunError."""
    status = 0
    for _ in range(LINES_MAX):
        found = _STATUS.match(await reader.readuntil(b"\n"))
        status = int(found[1]) if found else status
        if not 100 <= status < 200:
            break
    if status < 200:
        raise OSError("it does not answer in HTTP")
    return status


def _tls_context() -> ssl.SSLContext:
    """Return the trusted authorities and the methods of TLS; takes a tenth of a second."""
    context = ssl.create_default_context()
    context.set_alpn_protocols(["http/1.1"])
    context.set_ciphers(_CIPHERS)
    context.set_ecdh_curve(_GROUP)
    return context
