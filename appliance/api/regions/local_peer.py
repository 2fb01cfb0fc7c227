"""Which user of this machine is at the other end of a connection, as the kernel knows it."""

import socket
import struct
import sys
from ipaddress import IPv4Address, IPv6Address, ip_address
from pathlib import Path
from typing import Any

_TABLES = (Path("/proc/net/tcp"), Path("/proc/net/tcp6"))
"""Connections of this network namespace, of IPv4 and IPv6."""
_ESTABLISHED = "01"
_NOBODY = Path("/proc/sys/kernel/overflowuid")
"""Stands for every user of whom this user namespace has no number: of processes and of files."""
_CREDENTIALS = struct.Struct("3i")


def user_at(connection: socket.socket) -> int | None:
    """The user who opened the other end of a connected socket; None: that is on another machine, or in another
    namespace.

    Takes about a millisecond for each thousand connections of the machine.
    """
    user = _of_unix(connection) if connection.family == socket.AF_UNIX else _of_tcp(connection)
    return None if user == int(_NOBODY.read_text()) else user


def _of_unix(connection: socket.socket) -> int:
    credentials = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    return int(_CREDENTIALS.unpack(credentials)[1])


def _of_tcp(connection: socket.socket) -> int | None:
    try:
        ours, theirs = _spelled(connection.getsockname()), _spelled(connection.getpeername())
    except OSError:  # it has ended
        return None
    found = _owner(theirs, ours)
    # A socket whose process has gone counts as root's: one that goes during the first look is not there at the second.
    return found if found == _owner(theirs, ours) else None


def _owner(local: frozenset[str], remote: frozenset[str]) -> int | None:
    """Of the socket with these ends."""
    for table in _TABLES:
        for line in table.read_text().splitlines() if table.exists() else ():
            fields = line.split()
            if fields[1] in local and fields[2] in remote and fields[3] == _ESTABLISHED:
                user, inode = int(fields[7]), int(fields[9])
                return user if inode else None
    return None


def _spelled(name: tuple[Any, ...]) -> frozenset[str]:
    """An address as the tables may write it: one of IPv4 also as that of IPv6 which stands for it."""
    address = ip_address(str(name[0]).partition("%")[0])
    if isinstance(address, IPv6Address):
        address = address.ipv4_mapped or address
    packed = [address.packed]
    if isinstance(address, IPv4Address):
        packed.append(IPv6Address(f"::ffff:{address}").packed)
    return frozenset(f"{_digits(each)}:{name[1]:04X}" for each in packed)


def _digits(packed: bytes) -> str:
    """Words of 32 bits in the order of this machine."""
    return "".join(f"{int.from_bytes(packed[at : at + 4], sys.byteorder):08X}" for at in range(0, len(packed), 4))
