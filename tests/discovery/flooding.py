"""A stranger on the network, for tests: `python flooding.py ADDRESS ROUNDS`. From that address it sends what is no
message of multicast DNS, messages that are cut, lie about their length or point at themselves, and boxes that there are
not, as fast as it can; as many on a slow machine as on a quick one.
"""

import random
import socket
import struct
import sys

GROUP = ("224.0.0.251", 5353)
TYPE = b"\x0a_inference\x04_tcp\x05local\x00"


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


def main(address: str, rounds: int) -> None:
    line = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    line.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    line.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    line.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_IF, socket.inet_aton(address))
    line.bind((address, GROUP[1]))  # else it is taken for one that only asks
    chance = random.Random(1)
    print("begun", flush=True)
    for number in range(rounds):
        for message in messages(chance, number):
            line.sendto(message, GROUP)
    print("over", flush=True)


main(sys.argv[1], int(sys.argv[2]))
