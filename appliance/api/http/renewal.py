"""The certificate of a box that serves: shown anew to who connects next when its file has changed. Connections that are
open go on with the one that they began with.
"""

import asyncio
import ssl
from collections.abc import Callable
from pathlib import Path

from appliance import log

_State = tuple[int, int, int]
"""Of a file: which it is, when it was written, its size."""
LOOK_S = 60.0
"""How often files and addresses are looked at."""


class Renewal:
    """`renew` makes the file anew where that is the box's business, and blocks."""

    def __init__(self, context: ssl.SSLContext, cert: Path, key: Path, renew: Callable[[], object] | None) -> None:
        self._context = context
        self._cert, self._key = cert, key
        self._renew = renew
        self._shown = _state(cert), _state(key)
        self._looking: asyncio.Task[None] | None = None

    def begin_look(self) -> None:
        """Look in the background, unless the last look has not ended yet."""
        if self._looking is None or self._looking.done():
            self._looking = asyncio.create_task(self.look(), name="look at the certificate")

    async def look(self) -> None:
        """Renew where that is due, and show what is new. What cannot be read is told of, and the old one shown on."""
        try:
            found = await asyncio.to_thread(self._found)
            if found is None:
                return
            self._context.load_cert_chain(self._cert, self._key)  # on the event loop: it is read by every handshake
        except (OSError, ValueError) as error:  # ssl.SSLError, too
            log.get("certificate").error("the certificate cannot be renewed, the old one is shown", reason=str(error))
            return
        self._shown = found
        log.get("certificate").info("certificate renewed", file=str(self._cert))

    def _found(self) -> tuple[_State, _State] | None:
        """State of new files that belong together; None: there are none."""
        if self._renew is not None:
            self._renew()
        found = _state(self._cert), _state(self._key)
        if found == self._shown:
            return None
        # One half of a pair would leave the context of the box with a certificate and another one's key.
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(self._cert, self._key)
        return found


def _state(path: Path) -> _State:
    status = path.stat()
    return status.st_ino, status.st_mtime_ns, status.st_size
