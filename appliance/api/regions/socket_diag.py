"""What the kernel says of one TCP socket of this network namespace, asked for by its addresses: sock_diag(7).

A question takes some 30 µs, however many sockets there are.
"""

import socket
import struct
from ipaddress import IPv4Address, IPv6Address
from typing import NamedTuple

Address = IPv4Address | IPv6Address
End = tuple[Address, int]
"""Address and port."""

_FAMILY, _BY_FAMILY, _REQUEST, _ERROR = 4, 20, 1, 2
"""NETLINK_SOCK_DIAG, SOCK_DIAG_BY_FAMILY, NLM_F_REQUEST and NLMSG_ERROR of the kernel's headers."""
_HEADER = struct.Struct("=IHHII")
_ASKED = struct.Struct("=BBBxI")
_PORTS = struct.Struct("!HH")
_NO_DEVICE_NO_COOKIE = struct.pack("=III", 0, 0xFFFF_FFFF, 0xFFFF_FFFF)
_STATE, _OWNER = struct.Struct("=xB"), struct.Struct("=II")
_OWNER_AT = 64
"""Behind four bytes, the addresses and three counters."""
_ALL_STATES = 0xFFFF_FFFF
_ANSWER_BYTES = 8192


ESTABLISHED = 1
"""The state of a connection that both ends have open."""


class Found(NamedTuple):
    """A socket. `inode`: 0 where no process has it any more."""

    state: int
    user: int
    inode: int


def tcp_socket(local: End, remote: End) -> Found | None:
    """The socket with these ends, of one family; None: there is none, or the kernel was built without the answer.

    Raises: OSError where it cannot be asked.
    """
    family = socket.AF_INET if isinstance(local[0], IPv4Address) else socket.AF_INET6
    places = b"".join(end[0].packed.ljust(16, b"\0") for end in (local, remote))
    asked = _ASKED.pack(family, socket.IPPROTO_TCP, 0, _ALL_STATES)
    asked += _PORTS.pack(local[1], remote[1]) + places + _NO_DEVICE_NO_COOKIE
    with socket.socket(socket.AF_NETLINK, socket.SOCK_DGRAM, _FAMILY) as kernel:
        kernel.send(_HEADER.pack(_HEADER.size + len(asked), _BY_FAMILY, _REQUEST, 0, 0) + asked)
        answer = kernel.recv(_ANSWER_BYTES)
    if _HEADER.unpack_from(answer)[1] == _ERROR:
        return None
    (state,) = _STATE.unpack_from(answer, _HEADER.size)
    return Found(state, *_OWNER.unpack_from(answer, _HEADER.size + _OWNER_AT))
