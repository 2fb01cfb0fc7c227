"""Answers leave in one write, behind everything that was computed in the same turn, and complete."""

import asyncio
from typing import Any

import pytest

from appliance.api.corked import CorkedTransport


class _Transport:
    """Notes what is written and when it is closed."""

    def __init__(self) -> None:
        self.log: list[bytes | str] = []

    def write(self, data: bytes) -> None:
        self.log.append(data)

    def close(self) -> None:
        self.log.append("closed")

    def is_closing(self) -> bool:
        return "closed" in self.log


@pytest.mark.anyio
async def test_one_write_a_turn() -> None:
    """Head and body of a turn are joined; the next turn's write is its own."""
    below = _Transport()
    corked: Any = CorkedTransport(below, asyncio.get_running_loop())
    corked.write(b"head")
    corked.write(b"body")
    assert below.log == []
    await asyncio.sleep(0)  # noqa: TID251 - one turn of the loop, no time
    corked.write(b"more")
    await asyncio.sleep(0)  # noqa: TID251
    assert below.log == [b"headbody", b"more"]


@pytest.mark.anyio
async def test_close_loses_nothing() -> None:
    """Closing writes what was kept first; the rest of the transport shows through."""
    below = _Transport()
    corked: Any = CorkedTransport(below, asyncio.get_running_loop())
    corked.write(b"last words")
    corked.close()
    await asyncio.sleep(0)  # noqa: TID251
    assert below.log == [b"last words", "closed"]
    assert corked.is_closing()
