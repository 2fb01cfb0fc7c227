"""What planning sessions needs of the box."""

from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from dataclasses import dataclass

from appliance.clock import Clock
from appliance.policies.residency.base import Wish
from appliance.runtime.catalogue import Catalogue
from appliance.runtime.ports import DecisionSink
from appliance.runtime.servable import Servable
from appliance.runtime.serving.queue import Queue


@dataclass(frozen=True, slots=True)
class SessionEnvironment:
    """The box, as far as planning goes."""

    clock: Clock
    catalogue: Catalogue
    decisions: DecisionSink
    serving_workers: Callable[[], int]
    """How many workers there are whose processors take runs now; at least one."""
    fits_memory: Callable[[Servable], bool]
    """Whether it could be in memory by itself, beside the processes that stay, under its tenant's ceiling."""
    fits_beside: Callable[[Collection[Servable], Iterable[Servable]], bool]
    """Whether variants could be in memory beside others that are promised, under the ceilings of their tenants, with
    what is guaranteed to others."""
    told_beside: Callable[[Servable, Iterable[Servable]], str]
    """Why a variant finds no room beside others that are promised, to follow what finds no room."""
    held_beside: Callable[[], str]
    """What processes take of the memory, to follow what finds no room."""
    is_resident: Callable[[Servable], bool]
    """Whether it is in memory, awake."""
    is_asleep: Callable[[Servable], bool]
    """Whether it sleeps."""
    is_coming: Callable[[Servable], bool]
    """Whether it is being loaded, or woken."""
    has_room: Callable[[Servable], bool]
    """Whether it could come into memory now, and nothing would leave for it but what nobody uses yet."""
    bring: Callable[[Servable], Awaitable[None]]
    """Have it in memory, unless that takes too long or there is no room."""
    wish: Callable[[str, tuple[Wish, ...]], None]
    """Tell the residency loop which variants of an application to bring and to keep."""
    weights: Callable[[], Mapping[str, float]]
    """Of the tenants that want some of the processors now."""
    decode_ms: Callable[[str, str], float]
    """What decoding a frame takes that a tenant's devices send to an application."""
    queue: Queue
    """Where planned batches are reserved."""
    busy_for_ns: Callable[[], int]
    """For how long every worker is taken by the run that it has."""

    @property
    def workers(self) -> int:
        """Of the box, as many as serve now."""
        return self.serving_workers()
