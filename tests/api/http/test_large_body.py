"""Bodies that come in pieces: whole, aligned, and in memory once."""

import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from appliance.api.http.large_body import LargeBody


@given(st.lists(st.binary(max_size=300_000), max_size=30), st.integers(0, 500))
def test_large_body_in_pieces_is_whole_and_in_order(pieces: list[bytes], ahead: int) -> None:
    body = LargeBody(ahead)
    for piece in pieces:
        body.append(piece)
    assert len(body) == sum(map(len, pieces))
    assert body.view() == b"".join(pieces)


@pytest.mark.parametrize("ahead", [0, 1, 63, 64, 130])
def test_large_body_aligns_tensors_behind_the_json(ahead: int) -> None:
    """So they need no copy."""
    body = LargeBody(ahead)
    for _ in range(30):
        body.append(bytes(100_000))
    first = np.frombuffer(body.view(), np.uint8, 1, ahead)
    assert first.ctypes.data % 64 == 0


_GATHER = """
import asyncio
from appliance.api.http.limits import InFlight
from appliance.api.v2.messages import whole_body
from appliance.runtime.processors.cpu import heap

MIB = 2**20
heap.set_up()

def status(word):
    with open("/proc/self/status") as file:
        return next(int(line.split()[1]) // 1024 for line in file if line.startswith(word))

async def body(pieces, in_flight):
    left = pieces
    async def receive():
        nonlocal left
        left -= 1
        await asyncio.sleep(0)
        return {"type": "http.request", "body": bytearray(MIB // 4), "more_body": left > 0}
    with in_flight.body(str(pieces)) as held:
        view = await whole_body(receive, 0, 64 * MIB, held)
        await asyncio.sleep(0.1)
        return len(view)

async def main():
    in_flight = InFlight(256 * MIB)
    return sum(await asyncio.gather(*(body(4 * (10 + index), in_flight) for index in range(12))))

before = status("VmRSS")
whole = asyncio.run(main()) // MIB
print(whole, status("VmHWM") - before, status("VmRSS") - before)
"""


@pytest.mark.usefixtures("processes")
def test_large_bodies_growing_together_are_in_memory_once() -> None:
    """186 MiB of twelve bodies are in memory once, and afterwards they are gone: copies and holes would be as much
    again.
    """
    done = subprocess.run([sys.executable, "-c", _GATHER], capture_output=True, text=True, check=True)
    whole, most, left = map(int, done.stdout.split())
    assert whole == 186
    assert most < 1.5 * whole
    assert left < 0.5 * whole
