"""The account of what runs take while they last: their activations, beside the builds in the ledger."""

from collections.abc import Callable, Mapping

from appliance.domain.errors import NoRoomToRun, processes_beside


class RunMemory:
    """Room for runs: what the budget has left beside the builds, and what the machine has left beside the budget.

    Event-loop thread only.
    """

    def __init__(
        self,
        for_builds_bytes: Callable[[], int],
        free_bytes: Callable[[], int],
        idle_bytes: Callable[[], int] = lambda: 0,
        end_idle: Callable[[], bool] = lambda: False,
        overheads: Callable[[], Mapping[str, int]] = dict,
    ) -> None:
        """`for_builds_bytes`: what builds may take together. `free_bytes`: what none of them occupies or is promised,
        below zero where they are over the budget. `idle_bytes`: what idle processes take beside them; `end_idle`: ends
        one of these; whether there was one. `overheads`: sort of processes → what these take.
        """
        self._for_builds_bytes = for_builds_bytes
        self._free_bytes = free_bytes
        self._idle_bytes = idle_bytes
        self._end_idle = end_idle
        self._overheads = overheads
        self.spare_bytes = 0
        """What the machine could give beside the whole budget, as sampled last."""
        self.running_bytes = 0

    @property
    def room_bytes(self) -> int:
        """What one more run may take now."""
        return self._room_beside(0)

    def _room_beside(self, ended_bytes: int) -> int:
        """What it may take once processes of so many bytes have ended."""
        return max(0, self._free_bytes() + ended_bytes) + self.spare_bytes - self.running_bytes

    def check(self, build_id: str, variant: str, need_bytes: int) -> None:
        """End idle processes where a run fits only then. Raises: NoRoomToRun where it would not fit if it began now."""
        while self.room_bytes < need_bytes <= self._room_beside(self._idle_bytes()) and self._end_idle():
            pass
        room = self.room_bytes
        if need_bytes > room:
            most = self._for_builds_bytes() + self.spare_bytes
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
