"""An address that stays while the box behind it is killed and starts again, wherever it listens then."""

import asyncio
import threading
from collections.abc import Callable
from contextlib import suppress

_PIECE_BYTES = 1 << 16


class Relay:
    """Passes each connection on to a port of this machine; where nobody listens there, it ends.

    The relay holds its own port all the time: a box that starts again on a port that it had before may find another
    program there.
    """

    def __init__(self, port_of_box: Callable[[], int]) -> None:
        """`port_of_box` is asked for each connection."""
        self._port_of_box = port_of_box
        self._is_ready = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._serve()), name="relay")
        self.url = ""

    def __enter__(self) -> "Relay":
        self._thread.start()
        self._is_ready.wait()
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join()

    async def _serve(self) -> None:
        self._loop, self._stop = asyncio.get_running_loop(), asyncio.Event()
        server = await asyncio.start_server(self._pass_on, "127.0.0.1", 0)
        self.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        self._is_ready.set()
        await self._stop.wait()
        server.close()  # what is under way is cancelled with the loop

    async def _pass_on(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        ends = [writer]
        try:
            far_reader, far_writer = await asyncio.open_connection("127.0.0.1", self._port_of_box())
            ends.append(far_writer)
            ways = [asyncio.ensure_future(_copy(reader, far_writer)), asyncio.ensure_future(_copy(far_reader, writer))]
            await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
            for way in ways:
                way.cancel()
        except OSError:  # the box is away
            pass
        finally:
            for end in ends:
                end.close()


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with suppress(OSError):
        while piece := await reader.read(_PIECE_BYTES):
            writer.write(piece)
            await writer.drain()
