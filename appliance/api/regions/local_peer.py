"""Which user of this machine is at the other end of a connection, as the kernel knows it."""

import socket
import struct
import sys
from collections.abc import Collection
from contextlib import suppress
from ipaddress import IPv4Address, IPv6Address, ip_address
from pathlib import Path
from typing import Any

from appliance.api.regions.socket_diag import ESTABLISHED, End, tcp_socket

_TABLES = (Path("/proc/net/tcp"), Path("/proc/net/tcp6"))
"""Connections of this network namespace, of IPv4 and IPv6."""
_NOBODY = Path("/proc/sys/kernel/overflowuid")
"""Stands for every user of whom this user namespace has no number: of processes and of files."""
_CREDENTIALS = struct.Struct("3i")


def user_at(connection: socket.socket) -> int | None:
    """The user who opened the other end of a connected socket; None: that is on another machine, or in another
    namespace.

    Takes some 0.1 ms; with a kernel that has no answer for a single socket, a millisecond for each thousand of them.
    """
    user = _of_unix(connection) if connection.family == socket.AF_UNIX else _of_tcp(connection)
    return None if user == int(_NOBODY.read_text()) else user


def _of_unix(connection: socket.socket) -> int:
    credentials = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    return int(_CREDENTIALS.unpack(credentials)[1])


def _of_tcp(connection: socket.socket) -> int | None:
    try:
        ours, theirs = _end(connection.getsockname()), _end(connection.getpeername())
    except OSError:  # it has ended
        return None
    with suppress(OSError):
        if tcp_socket(ours, theirs) is not None:  # it answers at all
            return owner_of(theirs, ours)
    return _owner_in_tables(theirs, ours)


def owner_of(local: End, remote: End) -> int | None:
    """The user of the connection with these ends; a kernel that has none answers with who listens there."""
    found = tcp_socket(local, remote)
    return found.user if found is not None and found.state == ESTABLISHED and found.inode else None


def _owner_in_tables(local: End, remote: End) -> int | None:
    """The same, of kernels that answer no question about a single socket."""
    found = _owner(_spelled(local), _spelled(remote))
    # A socket whose process has gone counts as root's: one that goes during the first look is not there at the second.
    return found if found == _owner(_spelled(local), _spelled(remote)) else None


def _owner(local: Collection[str], remote: Collection[str]) -> int | None:
    starts = [f" {one} {other} {ESTABLISHED:02X} ".encode() for one in local for other in remote]
    for table in _TABLES:
        text = table.read_bytes() if table.exists() else b""
        for start in starts:
            _, is_there, rest = text.partition(start)
            if is_there:
                user, _, inode = rest.split(b"\n", 1)[0].split()[3:6]
                return int(user) if int(inode) else None
    return None


def _end(name: tuple[Any, ...]) -> End:
    """One of IPv4 as such, also where a socket of IPv6 has it."""
    address = ip_address(str(name[0]).partition("%")[0])
    return (address.ipv4_mapped or address if isinstance(address, IPv6Address) else address), name[1]


def _spelled(end: End) -> list[str]:
    """As the tables may write it: an address of IPv4 also as that of IPv6 which stands for it."""
    address, port = end
    packed = [address.packed]
    if isinstance(address, IPv4Address):
        packed.append(IPv6Address(f"::ffff:{address}").packed)
    return [f"{_digits(each)}:{port:04X}" for each in packed]


def _digits(packed: bytes) -> str:
    """Words of 32 bits in the order of this machine."""
    return "".join(f"{int.from_bytes(packed[at : at + 4], sys.byteorder):08X}" for at in range(0, len(packed), 4))
