"""Lines between a client and a box that break."""

from collections.abc import Iterator

import httpx


class BreakingLine(httpx.HTTPTransport):
    """Counts the bytes of uploads that it has sent, and breaks at each of these counts; or at one of them for good."""

    def __init__(self, *at: int, for_good: bool = False) -> None:
        super().__init__()
        self.sent = 0
        self._at, self._for_good = [*at], for_good

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        if request.method == "PATCH":
            assert isinstance(request.stream, httpx.SyncByteStream)
            request.stream = _Pieces(self._sent(request.stream))
        return super().handle_request(request)

    def _sent(self, stream: httpx.SyncByteStream) -> Iterator[bytes]:
        for block in stream:
            if self._at and self.sent + len(block) > self._at[0]:
                last = block[: self._at[0] - self.sent]
                self.sent += len(last)
                if not self._for_good:
                    self._at.pop(0)
                if last:
                    yield last
                raise httpx.WriteError("the line broke")
            self.sent += len(block)
            yield block


class _Pieces(httpx.SyncByteStream):
    def __init__(self, pieces: Iterator[bytes]) -> None:
        self._pieces = pieces

    def __iter__(self) -> Iterator[bytes]:
        return self._pieces
