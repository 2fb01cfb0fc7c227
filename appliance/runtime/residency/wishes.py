"""What the planners of sessions and of pipelines wish for applications: variants to bring and to keep."""

from collections.abc import Callable

from appliance.policies.residency.base import Wish


class PlannerWishes:
    """By application, and of each by source: what one planner wishes does not take away what another one does."""

    def __init__(self) -> None:
        self._by_source: dict[str, dict[str, tuple[Wish, ...]]] = {}

    def put(self, application_id: str, wishes: tuple[Wish, ...], source: str) -> None:
        """Replace what the planners of `source` wish for an application."""
        by_source = {**self._by_source.pop(application_id, {}), source: wishes}
        if any(by_source.values()):
            self._by_source[application_id] = by_source

    def of(self, is_member: Callable[[str], bool]) -> tuple[Wish, ...]:
        """All for the applications that are members, by their names."""
        members = [one for one in sorted(self._by_source) if is_member(one)]
        return tuple(wish for one in members for wishes in self._by_source[one].values() for wish in wishes)

    def forget(self, is_gone: Callable[[str], bool]) -> None:
        """Applications that there are no more."""
        for application_id in [one for one in self._by_source if is_gone(one)]:
            del self._by_source[application_id]
