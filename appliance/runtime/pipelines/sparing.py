"""Plans are made without throttled processors for as long as the others do: nobody is served less for their sake."""

from collections.abc import Sequence

from appliance.runtime.ports import RunGroup


class Sparing:
    """Event-loop thread only."""

    def __init__(self, groups: Sequence[RunGroup]) -> None:
        """`groups` of processors that run at the same time."""
        self._groups = tuple(groups)
        self._needed: frozenset[str] = frozenset()
        """Throttled groups without which somebody had less than they asked for."""

    def left_out(self) -> frozenset[str]:
        """Groups, by name, that plans do without now: not where there is no other, nor where they are needed."""
        throttled = self._throttled()
        if not throttled:
            self._needed = frozenset()
        serving = {one.name for one in self._groups if one.is_serving()}
        return frozenset() if serving <= throttled or throttled <= self._needed else throttled

    def need(self) -> bool:
        """Somebody has less than they asked for: plan with all from now on, until others are throttled; False: they
        were planned with.
        """
        if not self.left_out():
            return False
        self._needed = self._throttled()
        return True

    def _throttled(self) -> frozenset[str]:
        return frozenset(one.name for one in self._groups if one.is_throttled())
