"""A stranger on the network, for tests: `python flooding.py ADDRESS SECONDS`. From that address it sends what is no
message of multicast DNS, messages that are cut, lie about their length or point at themselves, and boxes that there are
not, as fast as it can.
"""

import random
import socket
import struct
import sys

from appliance.clock import NS_PER_S, SystemClock

GROUP = ("224.0.0.251", 5353)
TYPE = b"\x0a_inference\x04_tcp\x05local\x00"
CLOCK = SystemClock()


def header(questions: int, answers: int, flags: int = 0x8400) -> bytes:
    return struct.pack("!6H", 0, flags, questions, answers, 0, 0)


def record(name: bytes, kind: int, content: bytes, ttl_s: int = 120) -> bytes:
    return name + struct.pack("!2HIH", kind, 1, ttl_s, len(content)) + content


def messages(chance: random.Random, number: int) -> list[bytes]:
    """One of each kind."""
    box = f"nobody-{number}".encode()
    instance = bytes([len(box)]) + box + TYPE
    told = header(0, 2) + record(TYPE, 12, instance) + record(instance, 33, struct.pack("!3H", 0, 0, 1) + TYPE)
    loop = header(1, 0, 0) + b"\xc0\x0c" + struct.pack("!2H", 12, 1)
    return [
        chance.randbytes(chance.randrange(1, 1400)),
        header(65535, 65535),
        loop,
        header(0, 1) + b"\xc0\xff" + chance.randbytes(8),
        header(0, 1) + record(TYPE, 16, b"\xff" + chance.randbytes(40)),  # a text longer than its record
        header(0, 1) + record(b"\x3f" + chance.randbytes(63) + TYPE, 12, chance.randbytes(9)),
        told[: chance.randrange(len(told))],
        told,
        header(1, 0, 0) + TYPE + struct.pack("!2H", 12, 1),  # who is there?
    ]


def main(address: str, seconds: float) -> None:
    line = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    line.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    line.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    line.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_IF, socket.inet_aton(address))
    line.bind((address, GROUP[1]))  # else it is taken for one that only asks
    chance, number = random.Random(1), 0
    end_ns = CLOCK.now_ns() + int(seconds * NS_PER_S)
    print("begun", flush=True)
    while CLOCK.now_ns() < end_ns:
        for message in messages(chance, number):
            line.sendto(message, GROUP)
        number += 1
    print(number, flush=True)


main(sys.argv[1], float(sys.argv[2]))
