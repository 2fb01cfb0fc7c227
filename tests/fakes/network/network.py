"""A box and devices on one machine, each in a network of its own, joined by emulated links.

Network namespaces hold the two ends; a TUN device in each gives what is sent there to a process that carries it over
(`forwarder`), as slowly and lossily as the link says. Works without traffic shaping in the kernel, and needs root.
"""

import ctypes
import fcntl
import json
import os
import socket
import struct
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self, TypeVar

from appliance.lab.links.link import LinkShape, Passage
from tests.fakes.network.forwarder import Order, shape_to_json

T = TypeVar("T")

DEVICES_MAX = 250
_CLONE_NEWNET = 0x40000000
_TUN = "/dev/net/tun"
_TUNSETIFF = 0x400454CA
_IFF_TUN, _IFF_NO_PI = 0x0001, 0x1000
_SIOCSIFADDR, _SIOCSIFNETMASK, _SIOCGIFFLAGS, _SIOCSIFFLAGS = 0x8916, 0x891C, 0x8913, 0x8914
_IFF_UP = 0x1


@dataclass(frozen=True, slots=True)
class DeviceLink:
    """Both directions of a device's link: `up` to the box."""

    up: LinkShape
    down: LinkShape
    seed: int = 0


def unavailable() -> str | None:
    """Why such networks cannot be made here; None: they can."""
    if os.geteuid() != 0:
        return "emulated links need root"
    if not os.path.exists(_TUN):
        return f"emulated links need {_TUN}"
    return None


class Place:
    """One end: the box, or a device. What is opened in it is in its network."""

    def __init__(self) -> None:
        self._namespace = _in_thread(_new_namespace)

    def run(self, do: Callable[[], T]) -> T:
        """Do it in this network: sockets, threads and processes that it makes are there, too. Raises what it raises."""

        def inside() -> T:
            _checked(_libc().setns(self._namespace, _CLONE_NEWNET))
            return do()

        return _in_thread(inside)

    def start(self, command: Sequence[str], **options: Any) -> "subprocess.Popen[Any]":
        """A process in this network; `options` as of `subprocess.Popen`."""
        return self.run(lambda: subprocess.Popen(command, **options))

    def close(self) -> None:
        os.close(self._namespace)


class Network:
    """Made by `with`. `box` and `devices` (by name) are the ends; `address[name]` is the box's as that device sees it.

    `passages()` tells what went over the links, once it is over: what estimates are judged by.
    """

    def __init__(self, links: Mapping[str, DeviceLink], folder: Path) -> None:
        """`folder`: where the forwarder writes. Raises: OSError; ValueError for too many devices."""
        if len(links) > DEVICES_MAX:
            raise ValueError(f"{len(links)} devices are more than {DEVICES_MAX}")
        self._log = folder / "passages.jsonl"
        self._tunnels: list[int] = []
        self.box = Place()
        self.devices = {name: Place() for name in links}
        self.address = {name: f"10.77.{number}.1" for number, name in enumerate(links, 1)}
        order: list[Order] = []
        for number, (name, link) in enumerate(links.items(), 1):
            here = self.box.run(lambda number=number: _tunnel(f"to-{number}", f"10.77.{number}.1"))  # type: ignore[misc]
            there = self.devices[name].run(lambda number=number: _tunnel("link", f"10.77.{number}.2"))  # type: ignore[misc]
            self._tunnels += [here, there]
            order.append(
                {
                    "name": name,
                    "box": here,
                    "device": there,
                    "up": shape_to_json(link.up),
                    "down": shape_to_json(link.down),
                    "seed": link.seed,
                }
            )
        self._forwarder = subprocess.Popen(
            [sys.executable, "-m", "tests.fakes.network.forwarder", str(self._log)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            pass_fds=self._tunnels,
        )
        self._tell(order)
        assert self._forwarder.stdout is not None
        self._forwarder.stdout.readline()  # it is ready

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def cut(self, device: str, for_ms: float) -> None:
        """Nothing comes through for so long, from now on."""
        self._tell({"cut": device, "for_ms": for_ms})

    def move(self, device: str, last: int) -> None:
        """The device gets another address, 10.77.n.`last`; what it had open is dead."""
        prefix = self.address[device].rpartition(".")[0]
        self.devices[device].run(lambda: _address("link", f"{prefix}.{last}"))

    def passages(self) -> dict[str, dict[str, list[Passage]]]:
        """Device → `up` and `down` → what entered the link, in that order. After `close`."""
        found: dict[str, dict[str, list[Passage]]] = {name: {"up": [], "down": []} for name in self.devices}
        for line in self._log.read_text().splitlines():
            name, way, *passage = json.loads(line)
            found[name][way].append(Passage(*passage))
        return found

    def close(self) -> None:
        """End the links, and the networks once nobody is in them."""
        if self._forwarder.poll() is None:
            self._forwarder.communicate(timeout=60)  # it ends with its input
        for tunnel in self._tunnels:
            os.close(tunnel)
        for place in (self.box, *self.devices.values()):
            place.close()
        self._tunnels, self.devices = [], dict.fromkeys(self.devices, self.box)

    def _tell(self, what: object) -> None:
        assert self._forwarder.stdin is not None
        self._forwarder.stdin.write(json.dumps(what).encode() + b"\n")
        self._forwarder.stdin.flush()


def _in_thread(do: Callable[[], T]) -> T:
    """In a thread of its own, whose network may become another one."""
    done: Future[T] = Future()

    def work() -> None:
        try:
            done.set_result(do())
        except BaseException as error:
            done.set_exception(error)

    thread = threading.Thread(target=work, name="network")
    thread.start()
    thread.join()
    return done.result()


def _new_namespace() -> int:
    """A file that keeps a new network alive, whose own address works."""
    _checked(_libc().unshare(_CLONE_NEWNET))
    _up("lo")
    return os.open(f"/proc/self/task/{threading.get_native_id()}/ns/net", os.O_RDONLY | os.O_CLOEXEC)


def _tunnel(name: str, address: str) -> int:
    """A TUN device in the network of the calling thread; whoever has the file gets what is sent there."""
    tunnel = os.open(_TUN, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
    fcntl.ioctl(tunnel, _TUNSETIFF, struct.pack("16sH22x", name.encode(), _IFF_TUN | _IFF_NO_PI))
    _address(name, address)
    _up(name)
    return tunnel


def _address(name: str, address: str) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as control:
        for request, value in ((_SIOCSIFADDR, address), (_SIOCSIFNETMASK, "255.255.255.0")):
            spoken = struct.pack("=HH4s8x", socket.AF_INET, 0, socket.inet_aton(value))
            fcntl.ioctl(control, request, struct.pack("16s16s8x", name.encode(), spoken))


def _up(name: str) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as control:
        found = fcntl.ioctl(control, _SIOCGIFFLAGS, struct.pack("16sH22x", name.encode(), 0))
        flags = struct.unpack("16sH22x", found)[1] | _IFF_UP
        fcntl.ioctl(control, _SIOCSIFFLAGS, struct.pack("16sH22x", name.encode(), flags))


def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)


def _checked(result: int) -> None:
    """Raises: OSError."""
    if result:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
