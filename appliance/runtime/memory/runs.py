"""The account of what runs take while they last: their activations, beside the builds in the ledger."""

from collections.abc import Callable, Mapping

from appliance.domain.errors import NoRoomToRun, processes_beside


class RunMemory:
    """Room for runs: what the budget has left beside the builds, and what the machine has left beside the budget.

    Event-loop thread only.
    """

    def __init__(
        self,
        room_bytes: Callable[[], int],
        free_bytes: Callable[[], int],
        end_idle: Callable[[], bool] = lambda: False,
        overheads: Callable[[], Mapping[str, int]] = dict,
    ) -> None:
        """`room_bytes`: what builds may take together. `free_bytes`: what none of them occupies or is promised, below
        zero where they are over the budget. `end_idle`: ends an idle process beside them; whether there was one.
        `overheads`: sort of processes → what these take.
        """
        self._room_bytes = room_bytes
        self._free_bytes = free_bytes
        self._end_idle = end_idle
        self._overheads = overheads
        self.spare_bytes = 0
        """What the machine could give beside the whole budget, as sampled last."""
        self.running_bytes = 0

    @property
    def room_bytes(self) -> int:
        """What one more run may take now."""
        return max(0, self._free_bytes()) + self.spare_bytes - self.running_bytes

    def check(self, build_id: str, variant: str, need_bytes: int) -> None:
        """Raises: NoRoomToRun where a run would not fit if it began now."""
        while need_bytes > self.room_bytes and self._end_idle():
            pass
        room = self.room_bytes
        if need_bytes > room:
            most = self._room_bytes() + self.spare_bytes
            raise NoRoomToRun(
                build_id=build_id,
                need_bytes=need_bytes,
                budget_bytes=most,
                variant=variant,
                free_bytes=max(0, room),
                can_fit=need_bytes <= most,
                blockers=processes_beside(self._overheads()),
            )

    def begin(self, need_bytes: int) -> None:
        """A run begins; `end` follows with the same bytes."""
        self.running_bytes += need_bytes

    def end(self, need_bytes: int) -> None:
        """It is over."""
        self.running_bytes -= need_bytes
