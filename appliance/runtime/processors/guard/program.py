"""What the fork server of one kind of processor imports, and how a guard begins. A `forkserver.Program`."""

import socket
from collections.abc import Sequence
from typing import Any

from appliance.runtime.processors import KINDS
from appliance.runtime.processors.cpu.heap import set_up
from appliance.runtime.processors.guard.inside import be_guard


def get_ready(kind: str) -> None:
    """Open what guards on this kind of processor need of its runtime."""
    set_up()
    in_guard = KINDS[kind].guard
    assert in_guard is not None, "a guard is begun on kinds that have one"
    in_guard.get_ready()


def be_child(order: Any, descriptors: Sequence[int], parent: int) -> None:
    """Never returns."""
    control, errors, *channels = descriptors
    order = {**order, "home": {**order["home"], "parent": parent}}
    be_guard(order, socket.socket(fileno=control), [socket.socket(fileno=one) for one in channels], errors)
