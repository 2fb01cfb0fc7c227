"""Finds boxes that tell of themselves on the local network."""

import asyncio
from typing import Any

from appliance.clock import NS_PER_S, SystemClock
from appliance.discovery.service import TYPE, Service, read

FOUND_MAX = 200
"""Boxes that are asked where they are: anybody may tell of as many as they like."""


async def find(seconds: float) -> list[Service]:
    """Who answers within so many seconds, by name. Raises: ImportError without the extra `discovery`; OSError."""
    from zeroconf import DNSQuestionType, ServiceStateChange
    from zeroconf.asyncio import AsyncServiceBrowser, AsyncZeroconf

    clock = SystemClock()
    names: set[str] = set()

    def changed(zeroconf: Any, service_type: str, name: str, state_change: ServiceStateChange) -> None:
        if state_change is ServiceStateChange.Removed:
            names.discard(name)
        elif len(names) < FOUND_MAX:
            names.add(name)

    responder = AsyncZeroconf()
    try:
        # An answer to this program alone might reach another one at the port: a box, or the system's responder.
        browser = AsyncServiceBrowser(responder.zeroconf, TYPE, handlers=[changed], question_type=DNSQuestionType.QM)
        await clock.sleep_until_ns(clock.now_ns() + int(seconds * NS_PER_S))
        await browser.async_cancel()
        found = await asyncio.gather(*(_asked(responder, name, seconds) for name in sorted(names)))
    finally:
        await responder.async_close()
    return [service for service in found if service is not None]


async def _asked(responder: Any, name: str, seconds: float) -> Service | None:
    from zeroconf import DNSQuestionType
    from zeroconf.asyncio import AsyncServiceInfo

    info = AsyncServiceInfo(TYPE, name)
    wait_ms = int(seconds * 1000)
    if not await info.async_request(responder.zeroconf, wait_ms, DNSQuestionType.QM) or info.port is None:
        return None
    return read(name, info.parsed_scoped_addresses(), info.port, info.decoded_properties)
