"""Networks of this machine's own, which are joined."""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

FLOODING = Path(__file__).parent / "flooding.py"
SPACES = [f"appliance-{os.getpid()}-{side}" for side in "ab"]


def ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, capture_output=True)


@contextmanager
def networks_joined() -> Iterator[list[str]]:
    """Two namespaces with a cable between them."""
    with ExitStack() as stack:
        for space in SPACES:
            ip("netns", "add", space)
            stack.callback(ip, "netns", "delete", space)
        ip("link", "add", "eth0", "netns", SPACES[0], "type", "veth", "peer", "name", "eth0", "netns", SPACES[1])
        for number, space in enumerate(SPACES, 1):
            ip("-n", space, "address", "add", f"10.97.0.{number}/24", "dev", "eth0")
            ip("-n", space, "link", "set", "lo", "up")
            ip("-n", space, "link", "set", "eth0", "up")
        yield SPACES


def inside(space: str, *words: str) -> list[str]:
    return ["ip", "netns", "exec", space, sys.executable, *words]
