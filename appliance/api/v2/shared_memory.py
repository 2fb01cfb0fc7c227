"""The protocol's extension for system shared memory: a client on the box registers an object of its own, and says of a
tensor where in it the bytes are, or are to go.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from appliance.api.auth.callers import Connection
from appliance.api.auth.keyring import Principal
from appliance.api.box import ServingBox
from appliance.api.regions.local_peer import user_at
from appliance.api.regions.region import Region, SharedObject
from appliance.api.regions.regions import Regions
from appliance.api.v2.tensors import InferCall, SharedTensors, bytes_of, shared_input
from appliance.domain.catalogue import Application
from appliance.domain.errors import BadRegion, NotOnBox, SharedMemoryOff, TooLarge, WrongKey
from appliance.domain.request import Request, Result
from appliance.runtime.serving.eager import in_task
from appliance.tasks.large_json import LARGE_BYTES

EXTENSION = "system_shared_memory"
PATH = "systemsharedmemory"
_NAME_MAX = 255
_BYTES_MAX = 1 << 40
_COPIED_SOON_BYTES = 2**20
"""Copied within a fraction of a millisecond."""
_TEXTS_SOON = 4096
"""Texts packed within that."""
_TENSORS_SOON = 32
"""Each takes some 40 µs, however small it is."""
_TENSORS_MAX = 1024
"""Of one request."""


def regions_of(box: ServingBox) -> Regions:
    """Raises: SharedMemoryOff."""
    if box.regions is None:
        raise SharedMemoryOff(name=PATH)
    return box.regions


# -- regions -----------------------------------------------------------------------------------------------------------


async def register(
    box: ServingBox,
    principal: Principal,
    parts: list[str],
    order: Mapping[str, Any],
    connection: Connection | None = None,
) -> Any:
    """A region of an object that belongs to the user who runs the caller's process, which is on the box.

    Raises: SharedMemoryOff, NotOnBox, BadRegion, QuotaExceeded; WrongKey where the key was revoked meanwhile.
    """
    regions, name = regions_of(box), parts[2]
    key, offset, size = order.get("key"), order.get("offset", 0), order.get("byte_size")
    if not 0 < len(name) <= _NAME_MAX:
        raise BadRegion(reason=f"the name of a shared memory region has at most {_NAME_MAX} characters")
    if not isinstance(key, str):
        raise BadRegion(reason="key: must be a string")
    if type(offset) is not int or not 0 <= offset <= _BYTES_MAX:
        raise BadRegion(reason="offset: must be a whole number ≥ 0")
    if type(size) is not int or not 0 < size <= _BYTES_MAX:
        raise BadRegion(reason="byte_size: must be a whole number > 0")
    user = await _user_at(connection)
    if box.keyring.known(principal.key_id) is None or not box.catalogue.has_tenant(principal.tenant):
        raise WrongKey()
    regions.add(principal.tenant, Region(name, key, offset, size, principal.key_id, SharedObject(key, user)))
    return {}


async def _user_at(connection: Connection | None) -> int:
    """Whose process asks. Raises: NotOnBox."""
    carried_by = None if connection is None else connection.duplicate()
    if carried_by is None:
        raise NotOnBox()
    with carried_by:  # one's own: the number of a socket that is closed meanwhile may be another's then
        user = await asyncio.to_thread(user_at, carried_by)
    if user is None:
        raise NotOnBox()
    return user


async def _status(box: ServingBox, principal: Principal, parts: list[str], _: Mapping[str, Any]) -> Any:
    """Of one region, or of all of the tenant: a list both ways, as the protocol has it."""
    regions = regions_of(box)
    asked = regions.all(principal.tenant) if len(parts) == 2 else [regions.get(principal.tenant, parts[2])]
    return [{"name": one.name, "key": one.key, "offset": one.offset, "byte_size": one.size} for one in asked]


async def _unregister(box: ServingBox, principal: Principal, parts: list[str], _: Mapping[str, Any]) -> Any:
    """One region, or all of the tenant."""
    regions = regions_of(box)
    if len(parts) == 2:
        regions.drop_tenant(principal.tenant)
    else:
        regions.drop(principal.tenant, parts[2])
    return {}


def route(parts: list[str], method: str) -> Callable[..., Awaitable[Any]] | None:
    """`PATH/status`, `PATH/unregister`, `PATH/region/NAME/{status,register,unregister}`."""
    is_one = len(parts) == 4 and parts[1] == "region"
    if not is_one and len(parts) != 2:
        return None
    if method == "GET":
        return _status if parts[-1] == "status" else None
    if method == "POST" and parts[-1] == "register" and is_one:
        return register
    return _unregister if method == "POST" and parts[-1] == "unregister" else None


# -- infer -------------------------------------------------------------------------------------------------------------


async def infer_shared(
    box: ServingBox,
    application: Application,
    tenant: str,
    variant: str | None,
    call: InferCall,
    shared: SharedTensors,
    request: Callable[[], Request],
) -> Result:
    """Read the inputs that are in shared memory, run `request()`, write the outputs that belong there. `variant`: that
    the request names.

    A region that is unregistered meanwhile stays open until then. Raises: SharedMemoryOff, UnknownRegion, BadRegion,
    BadTensor, TooLarge, Busy, and what a run raises.
    """
    regions = regions_of(box)
    if len(shared.inputs) + len(shared.outputs) > _TENSORS_MAX:
        raise BadRegion(reason=f"a request may have at most {_TENSORS_MAX} tensors in shared memory")
    inputs, outputs = _Inputs(regions, tenant, shared), _Outputs(regions, tenant, shared)
    if inputs.size > box.body_bytes_max:
        raise TooLarge(what="what a request reads from shared memory", limit_bytes=box.body_bytes_max)
    texts = [each for each, _ in shared.inputs if each.is_built]
    if texts:
        box.engine.check_inputs(application, tenant, variant, [each.described for each in texts])

    async def do(work: Callable[[], None], is_slow: bool) -> None:
        """Where media is worked on, when it takes long."""
        if is_slow:
            await in_task()
            await box.media.run(application.id, tenant, None, work)
        else:
            work()

    with box.in_flight.body(tenant) as held:  # the copies take memory as a body does
        held.announce(inputs.size)
        held.grow(inputs.size)
        held.add(sum(each.built_bytes for each in texts))
        await do(lambda: inputs.read(call), inputs.are_slow)
        result = await box.engine.infer(request())
        await do(lambda: outputs.write(call, result), outputs.are_slow(result))
    return result


class _Inputs:
    """Those of a call that are in shared memory."""

    def __init__(self, regions: Regions, tenant: str, shared: SharedTensors) -> None:
        """Raises: UnknownRegion, BadRegion where a place is not inside its region."""
        self._places = [(each, regions.get(tenant, place.region), place) for each, place in shared.inputs]
        for described, region, place in self._places:
            region.check(place.offset, place.size, described.where)
        self.size = sum(place.size for _, _, place in self._places)

    @property
    def are_slow(self) -> bool:
        """Whether reading them takes more than a millisecond."""
        texts = sum(place.size for each, _, place in self._places if each.word == "BYTES")
        return self.size > _COPIED_SOON_BYTES or texts > LARGE_BYTES or len(self._places) > _TENSORS_SOON

    def read(self, call: InferCall) -> None:
        """Copied once, then looked at: what their owner changes later changes nothing. Raises: BadRegion, BadTensor."""
        for described, region, place in self._places:
            call.inputs[described.name] = shared_input(described, region.read(place.offset, place.size))


class _Outputs:
    """Those of a call that go into shared memory."""

    def __init__(self, regions: Regions, tenant: str, shared: SharedTensors) -> None:
        """Raises: UnknownRegion, BadRegion where a place is not inside its region."""
        self._places = [(name, regions.get(tenant, place.region), place) for name, place in shared.outputs.items()]
        for name, region, place in self._places:
            region.check(place.offset, place.size, f"output {name!r}")

    def are_slow(self, result: Result) -> bool:
        """Whether writing them takes more than a millisecond."""
        arrays = [result.outputs[name] for name, _, _ in self._places]
        texts: int = sum(array.size for array in arrays if array.dtype.kind in "OUS")
        size: int = sum(array.nbytes for array in arrays)
        return size > _COPIED_SOON_BYTES or texts > _TEXTS_SOON or len(arrays) > _TENSORS_SOON

    def write(self, call: InferCall, result: Result) -> None:
        """All, or none where one is larger than its place. Raises: BadRegion."""
        packed = [bytes_of(result.outputs[name]) for name, _, _ in self._places]
        for (name, _, place), data in zip(self._places, packed, strict=True):
            if len(data) > place.size:
                raise BadRegion(reason=f"output {name!r} takes {len(data)} bytes, and has a place of {place.size}")
        for (_, region, place), data in zip(self._places, packed, strict=True):
            region.write(place.offset, data)
        call.written = {
            name: place._replace(size=len(data)) for (name, _, place), data in zip(self._places, packed, strict=True)
        }
