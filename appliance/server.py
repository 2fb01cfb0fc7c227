"""The box behind a port: HTTP or HTTPS until a signal ends it."""

import asyncio
import gc
import logging
import os
import resource
import socket
import ssl
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import uvicorn

from appliance import __version__, log
from appliance.api.auth.browsers import own_names
from appliance.api.http.connections import Connections, Counted
from appliance.api.http.fingerprint import fingerprint_of
from appliance.api.http.handshake import Handshake
from appliance.api.http.origins import Origins
from appliance.api.http.pace import Pace
from appliance.api.http.proxies import Proxies
from appliance.api.http.renewal import LOOK_S, Renewal
from appliance.api.http.unix_socket import UnixSocket
from appliance.api.http.unread import Unread
from appliance.api.protocol import BoxProtocol
from appliance.api.regions.regions import files_max
from appliance.app import Appliance
from appliance.clock import Clock
from appliance.discovery.announcement import Announcement
from appliance.discovery.service import Service, reachable
from appliance.settings import Settings
from appliance.systemd import Systemd

_TICKS_PER_LOOK = 10
_TICKS_PER_RENEWAL = int(LOOK_S * 10)
_MIGRATION_S = 600
"""How long what an older version left may take to become today's before systemd gives the start up."""
_ACCEPTS = 16
_OTHER_FILES = 256
"""Open files that are no connections: the database, models, libraries, pipes to children and guards."""


class Server(uvicorn.Server):
    """Tells the box that the end begins before it waits for connections, and writes down where it listens."""

    def __init__(
        self,
        config: uvicorn.Config,
        appliance: Appliance,
        connections: Connections[Counted],
        handshake_s: float,
        on_listen: Callable[[str], None],
        systemd: Systemd,
        unix_socket: UnixSocket | None = None,
        renew: Callable[[], object] | None = None,
        discovery: str | None = None,
    ) -> None:
        """`discovery`: the name under which the local network is told of the box; None: it is not."""
        super().__init__(config)
        self._unix_socket = unix_socket
        self._appliance = appliance
        self._connections = connections
        self._handshake_s = handshake_s
        self._on_listen = on_listen
        self._systemd = systemd
        self._renew = renew
        self._renewal: Renewal | None = None
        self._discovery = discovery
        self._announcement: Announcement | None = None

    async def startup(self, sockets: Any = None) -> None:
        context, plain = self.config.ssl, self.config.http_protocol_class
        if context is not None:  # the connections see to it themselves, so that they count and end before
            shake = partial(Handshake, context, self._connections, self._handshake_s)
            self.config.http_protocol_class = lambda **parts: shake(partial(plain, **parts))  # type: ignore[assignment]
            self.config.ssl = None
            assert self.config.ssl_certfile is not None
            cert, key = Path(self.config.ssl_certfile), Path(self.config.ssl_keyfile or self.config.ssl_certfile)
            self._renewal = Renewal(context, cert, key, self._renew)
        await super().startup(self._both_families() if sockets is None else sockets)
        parts = {"config": self.config, "server_state": self.server_state, "app_state": self.lifespan.state}
        await self._listen_more(partial(self.config.http_protocol_class, **parts))
        if self._unix_socket is not None and self.started:
            listening = await asyncio.get_running_loop().create_unix_server(
                partial(plain, **parts),
                sock=self._unix_socket.socket,
                backlog=self.config.backlog,
            )
            self.servers.append(listening)
        if self.servers and self.started:
            host, port = self.servers[0].sockets[0].getsockname()[:2]
            scheme = "https" if self.config.is_ssl else "http"
            self._on_listen(f"{scheme}://{f'[{host}]' if ':' in host else host}:{port}")
            if self._discovery is not None:
                self._announcement = Announcement(self._appliance.clock, partial(self._service, self._discovery, port))
                self._announcement.begin()

    def _both_families(self) -> list[socket.socket] | None:
        """Return a socket for IPv4 and IPv6 where the box listens at all addresses; None: uvicorn makes its own."""
        if self.config.host != "::":
            return None
        address = ("::", self.config.port)
        return [socket.create_server(address, family=socket.AF_INET6, backlog=2048, dualstack_ipv6=True)]

    async def _listen_more(self, protocol: Callable[[], asyncio.Protocol]) -> None:
        """Take up to `_ACCEPTS` new connections in a turn of the event loop, which takes one from each descriptor of
        the socket that listens.
        """
        for listening in [one for server in self.servers for one in server.sockets] if self.started else ():
            for _ in range(_ACCEPTS - 1):
                again = socket.socket(fileno=os.dup(listening.fileno()))
                loop = asyncio.get_running_loop()
                self.servers.append(await loop.create_server(protocol, sock=again, backlog=self.config.backlog))

    def _service(self, name: str, port: int) -> Service:
        """What the local network is told; blocks."""
        cert = self.config.ssl_certfile
        fingerprint = "" if cert is None else _known_by(Path(cert), is_own=self._renew is not None)
        return Service(name, reachable(self.config.host), port, __version__, cert is not None, fingerprint)

    async def on_tick(self, counter: int) -> bool:
        """Ten times a second; every tenth time the connections are looked at.

        systemd hears of a box only while its event loop turns and no run has got stuck: one that serves on with a
        processor less for ever is better begun anew.
        """
        if not self._appliance.is_stuck():
            self._systemd.alive(self._appliance.clock.now_ns())
        if counter % _TICKS_PER_LOOK == 0:
            now_s = asyncio.get_running_loop().time()
            for connection in list(self.server_state.connections):
                assert isinstance(connection, BoxProtocol)
                connection.look(now_s)
        if self._renewal is not None and counter % _TICKS_PER_RENEWAL == 0:
            self._renewal.begin_look()
        return await super().on_tick(counter)

    async def shutdown(self, sockets: Any = None) -> None:
        self._systemd.stopping()
        if self._announcement is not None:
            await self._announcement.end()
        self._appliance.begin_drain()
        await super().shutdown(sockets)
        # A signal that was obeyed is no failure: not raised again, so that the clean-up runs and the status is 0.
        self._captured_signals.clear()


def serve(settings: Settings, on_listen: Callable[[str], None] = lambda url: None) -> None:
    """Run the box until SIGTERM or SIGINT. The address stands in STATE/address while it listens.

    Raises: what kept the box from starting: InUse (another box runs on the folder, or listens at the Unix socket),
    StorageFull, OSError (of the Unix socket) ...
    """
    os.umask(0o077)  # whatever is written from here on is for the box alone
    log.configure(settings.log.level, settings.log.format)
    systemd = Systemd.of(os.environ)
    appliance = Appliance(settings)
    appliance.on_migrating = partial(systemd.extend, _MIGRATION_S, "the state folder is made as this version has it")
    appliance.take_thread()
    # What a start makes stays for good: a collection that looked at it would hold the event loop for 20 to 100 ms.
    appliance.management.on_made = gc.freeze
    http = settings.http
    address = settings.state_dir / "address"

    stack = ExitStack()

    def listening(url: str) -> None:
        gc.freeze()
        gc.enable()
        address.write_text(url + "\n")
        stack.callback(address.unlink, missing_ok=True)
        on_listen(url)
        systemd.ready(f"listens at {url}")

    cert, key, renew = _certificate(settings, appliance.clock)
    other_files = _OTHER_FILES + (files_max(http.shared_memory_regions_max) if http.shared_memory else 0)
    connections_max = _connections_max(http.connections_max, other_files)
    connections = Connections[Counted](connections_max, http.connections_reserved)
    config = uvicorn.Config(
        appliance.asgi,
        host=http.host,
        port=http.port,
        loop="uvloop",
        http=partial(  # type: ignore[arg-type]  # called as the class would be
            BoxProtocol,
            connections=connections,
            unread=Unread(http.unread_bytes_max),
            pace=Pace(http.head_s, http.keep_alive_s, http.body_s, http.body_bytes_per_s_min),
            head_bytes_max=http.head_bytes_max,
            turns=appliance.turns,
            proxies=Proxies(map(str, http.proxies)),
            origins=Origins(http.cors_origins),
        ),
        ws="none",
        lifespan="on",
        access_log=False,
        log_config=None,
        server_header=False,
        timeout_graceful_shutdown=max(1, int(http.drain_s)),
        ssl_certfile=cert,
        ssl_keyfile=key,
        ssl_version=ssl.PROTOCOL_TLS_SERVER,
        proxy_headers=False,
    )
    unix_socket = None
    if http.unix_socket is not None:
        unix_socket = UnixSocket(http.unix_socket, int(http.unix_socket_mode, 8))
        stack.callback(unix_socket.close)
    discovery = (settings.discovery.name or socket.gethostname()) if settings.discovery.enabled else None
    logging.getLogger("uvicorn.error").addFilter(lambda record: appliance.failure is None)
    with stack:  # a box that could not start leaves the address of the one that runs here alone
        try:
            Server(config, appliance, connections, http.head_s, listening, systemd, unix_socket, renew, discovery).run()
        except SystemExit:
            if appliance.failure is not None:
                raise appliance.failure from None
            raise


def _connections_max(wanted: int, other_files: int) -> int:
    """As many as may be open beside other files; the limit on open files is raised as far as the system lets it."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    allowed = wanted if hard == resource.RLIM_INFINITY else max(1, min(wanted, hard - other_files))
    if allowed < wanted:
        log.get("server").warning(
            "fewer connections than connections_max, since the system lets the box open too few files",
            connections=allowed,
            connections_max=wanted,
            open_files_max=hard,
        )
    return allowed


def _known_by(cert: Path, *, is_own: bool) -> str:
    """The fingerprint of the box's own authority, which stays when the certificate is renewed, else of the certificate;
    empty where the file cannot be read just now.
    """
    if is_own:
        from appliance.api.http import certificate  # cryptography is large and seldom needed

        cert = cert.with_name(certificate.AUTHORITY)
    try:
        return fingerprint_of(cert)
    except (OSError, ValueError):
        return ""


def _certificate(settings: Settings, clock: Clock) -> tuple[Path | None, Path | None, Callable[[], object] | None]:
    """Files of the certificate and its key, and what makes them anew where that is due. Raises: OSError where there is
    none and none can be made.
    """
    http = settings.http
    if http.tls_cert is not None or not http.tls_self_signed:
        return http.tls_cert, http.tls_key, None
    from appliance.api.http import certificate  # cryptography is large and seldom needed

    folder = settings.state_dir / "tls"
    own = own_names(http.host, settings.security.host_names)

    def renew() -> bool:
        return certificate.ensure(folder, certificate.names_of(http.host, own), clock.wall_now())

    cert, key = folder / certificate.CERTIFICATE, folder / certificate.KEY
    try:
        renew()
    except OSError as error:  # a full disk, and the machine has a new address: what is there serves meanwhile
        if not (cert.exists() and key.exists()):
            raise
        log.get("certificate").error("the certificate cannot be renewed, the old one is shown", reason=str(error))
    return cert, key, renew
