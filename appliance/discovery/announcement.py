"""Tells the local network of a box while it serves; follows the machine's addresses and the box's certificate."""

import asyncio
import socket
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from typing import Any

from appliance import log
from appliance.clock import NS_PER_S, Clock
from appliance.discovery.service import TYPE, Service

_LOOK_S = 2.0
_GOODBYE_S = 1.0
_TTL_S = 120
"""So long others remember a box that was killed."""


class Announcement:
    """`current` says what is to be told, and blocks; without addresses nothing is. Event-loop thread only."""

    def __init__(self, clock: Clock, current: Callable[[], Service]) -> None:
        self._clock = clock
        self._current = current
        self._task: asyncio.Task[None] | None = None
        self._told: Service | None = None
        self._responder: Any = None
        self._info: Any = None

    def begin(self) -> None:
        """Tell of the box from now on."""
        self._task = asyncio.create_task(self._follow(), name="discovery")

    async def end(self) -> None:
        """Say goodbye."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        with suppress(TimeoutError):
            await asyncio.wait_for(self._fall_silent(), _GOODBYE_S)

    async def _follow(self) -> None:
        """Tell anew whenever what is to be told has changed."""
        failed = ""
        while True:
            try:
                wanted = await asyncio.to_thread(self._current)
                if wanted != self._told:
                    await self._tell(wanted)
                failed = ""
            except ImportError as error:
                log.get("discovery").error("not announced: it takes the extra `discovery`", reason=str(error))
                return
            except Exception as error:  # networks come and go, also while they are looked at; it is tried again
                if failed != repr(error):
                    log.get("discovery").warning("not announced", reason=repr(error))
                failed = repr(error)
            await self._clock.sleep_until_ns(self._clock.now_ns() + int(_LOOK_S * NS_PER_S))

    async def _tell(self, wanted: Service) -> None:
        module = await asyncio.to_thread(_zeroconf)
        told = self._told
        if self._responder is not None and told is not None and told.addresses == wanted.addresses:
            self._info = self._made(module, replace(wanted, name=self._info.name.removesuffix(f".{TYPE}")))
            await self._responder.async_update_service(self._info)
            self._told = wanted
            return
        await self._fall_silent()  # it hears on the interfaces that there were
        if not wanted.addresses:
            self._told = wanted
            return
        self._responder = module.asyncio.AsyncZeroconf(interfaces=_interfaces(wanted))
        self._info = self._made(module, wanted)
        # Where another one has the name, this one becomes NAME-2.
        announcing = await self._responder.async_register_service(self._info, allow_name_change=True)
        await announcing
        self._told = wanted
        log.get("discovery").info("announced", name=self._info.name, addresses=wanted.addresses)

    @staticmethod
    def _made(module: Any, wanted: Service) -> Any:
        # A host name of its own: the machine's may be announced by others, with other addresses.
        place = f"{wanted.addresses[0]}-{wanted.port}".replace(":", "-").replace(".", "-")
        host = f"{socket.gethostname().partition('.')[0]}-{place}"
        return module.asyncio.AsyncServiceInfo(
            TYPE,
            f"{wanted.name}.{TYPE}",
            port=wanted.port,
            properties=wanted.properties(),
            server=f"{host}.local.",
            parsed_addresses=list(wanted.addresses),
            host_ttl=_TTL_S,
            other_ttl=_TTL_S,
        )

    async def _fall_silent(self) -> None:
        responder, self._responder, self._told = self._responder, None, None
        if responder is not None:
            await responder.async_unregister_all_services()
            await responder.async_close()


def _interfaces(wanted: Service) -> list[str]:
    """Those of the addresses of version 4 where there are some: others have them, too."""
    four = [address for address in wanted.addresses if ":" not in address]
    return four or list(wanted.addresses)


def _zeroconf() -> Any:
    """Raises: ImportError without the extra `discovery`."""
    import zeroconf
    import zeroconf.asyncio

    return zeroconf
