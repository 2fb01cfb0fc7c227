"""Registry of room policies: the name in the settings → how to make one."""

from collections.abc import Callable, Mapping

from appliance.policies.room.base import RoomPolicy
from appliance.policies.room.lru import LeastRecentlyUsed
from appliance.policies.room.none import NeverEvict

ROOM_POLICIES: Mapping[str, Callable[[], RoomPolicy]] = {
    "lru": LeastRecentlyUsed,
    "none": NeverEvict,
}
