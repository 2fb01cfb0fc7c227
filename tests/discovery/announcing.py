"""A box that only tells of itself, for tests: `python announcing.py NAME`. Prints `told` once it has, ends with its
standard input, and prints `gone` then.
"""

import asyncio
import sys

from appliance.clock import SystemClock
from appliance.discovery.announcement import Announcement
from appliance.discovery.service import Service, reachable


async def main(name: str) -> None:
    def current() -> Service:
        return Service(name, reachable("0.0.0.0"), 8443, "1.2.3", True, "ab" * 32)

    announcement = Announcement(SystemClock(), current)
    announcement.begin()
    print("told", flush=True)
    await asyncio.to_thread(sys.stdin.readline)
    await announcement.end()
    print("gone", flush=True)


asyncio.run(main(sys.argv[1]))
