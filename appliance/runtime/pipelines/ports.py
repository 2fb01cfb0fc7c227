"""What a pipeline needs of where it runs: predictor and media threads of a box, or what emulates them in the lab."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

from appliance.domain.pipeline import Ask, Region, Stage
from appliance.domain.request import FrameStanding, Request, RunMeter
from appliance.tasks.base import Media

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class ItemCall:
    """For whom an item is worked on, and until when."""

    tenant: str
    request_id: str
    arrival_ns: int
    """When it could begin."""
    deadline_ns: int
    """Of this stage: that of the frame less what the stages behind it are expected to take."""
    variant: str | None = None
    """As planned, or as the stage says."""
    is_planned: bool | None = None
    """False: beyond what the plan counts on; it waits behind other tenants' planned ones. None: there is no plan."""
    is_of_planned: bool = True
    """False: not even its frame is what the plan counts on; it waits behind the tenant's other ones."""
    batch: int = 0
    """As of a `Request`."""
    frame: FrameStanding | None = None
    """As of a `Request`."""
    behind_ns: int = 0
    """As of a `Request`."""
    meter: RunMeter | None = None
    """Who pays for its runs."""
    sequence_id: str | None = None
    """Of a network with a state: whose frames it keeps apart."""
    watch: Callable[[Request], None] | None = None
    """Is shown the request that goes to the engine."""


@dataclass(frozen=True, slots=True)
class StageAnswer:
    """What a network said of one item."""

    body: Mapping[str, Any]
    """The task's fields, as `predict` answers them."""
    variant: str
    kind: str
    """Of the processor that ran it."""
    compute_ns: int
    """Of its run."""
    text: bytes = b""
    """`body` as a JSON object; empty: nobody has written it yet."""


class StageRunner(Protocol):
    """Where stages run. Every method raises what `Predictor.predict` raises."""

    async def read(self, media: Media, asks: Sequence[Ask], call: ItemCall, *, is_cut: bool) -> Any:
        """The frame's input, decoded once: a subject. `asks`: who looks at it, and needs no more of it than its tensor
        takes; `is_cut`: items are cut from it, too. Whoever has it gives it back with `release`.
        """
        ...

    async def cut(self, stage: Stage, subject: Any, regions: Sequence[Region], call: ItemCall) -> Sequence[Any]:
        """A subject for each region, which lie in the frame's input, whichever subject of it is given; each is to be
        released. None in place of one that cannot be cut.
        """
        ...

    def release(self, subject: Any) -> None:
        """It is needed no more: once that is so of all that are cut from an input, that is freed."""
        ...

    def is_busy(self) -> bool:
        """Whether a processor is at work, or anybody waits for one."""
        ...

    def workers(self) -> int:
        """That take runs now."""
        ...

    def check(self, stage: Ask, call: ItemCall) -> None:
        """Early drop (SC-25), before an item costs anything: the rule of dispatch, and its counter.

        Raises: DeadlineExceeded where a run that began now would end too late.
        """
        ...

    async def prepare(self, stage: Ask, subjects: Sequence[Any], call: ItemCall) -> Sequence[Any]:
        """What a network needs of each subject, made in one turn of where media is worked on. A subject may be a text
        of the stage before. One that cannot be prepared is told so by `ask`.
        """
        ...

    async def ask(self, stage: Ask, prepared: Any, call: ItemCall) -> StageAnswer:
        """What the network says of one that is prepared."""
        ...

    async def compute(self, stage: Stage, call: ItemCall, work: Callable[[], T]) -> T:
        """The value of `work()`, which takes no more than a millisecond: a CPU stage, where media is worked on."""
        ...

    def expected_ns(self, stage: Ask, tenant: str) -> int:
        """What a run of an item is expected to take now; 0: nobody knows."""
        ...

    def keep(self, tenant: str, count: int) -> None:
        """So many bytes of answers stay in memory until they are given back. Raises: Busy where there is no room."""
        ...

    def give_back(self, tenant: str, count: int) -> None:
        """They are in memory no more."""
        ...

    def take_slot(self, tenant: str) -> bool:
        """Whether a tenant may have one more item under way, beside the first of each frame."""
        ...

    def give_slot(self, tenant: str) -> None:
        """One that was taken is free."""
        ...
