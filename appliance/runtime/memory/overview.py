"""What others see of the builds in memory, kept by change: who is there, who sleeps, who leaves.

Whoever changes a build says so, by its id; it is looked at when somebody asks next. So a question costs what has
changed since the last one, however many builds there are.
"""

from collections import Counter
from collections.abc import Callable, Mapping
from operator import attrgetter

from appliance.domain.states import ResidencyState
from appliance.runtime.memory.build import LoadedBuild
from appliance.runtime.memory.room import ResidentBuild

_S = ResidencyState
_COMING = (_S.RESIDENT, _S.LOADING)
_BY_ID = attrgetter("build_id")


class Overview:
    """The rows and lists of a ledger. What it answers is the caller's: it is made anew where it changes."""

    def __init__(
        self, build_of: Callable[[str], LoadedBuild | None], kept_when_gone: Callable[[LoadedBuild], int]
    ) -> None:
        self._build_of = build_of
        self._kept_when_gone = kept_when_gone
        self.changed: set[str] = set()
        """Builds to look at again."""
        self.followed: Counter[str] = Counter()
        """Builds that leave as soon as their replacement has come, and how many that are."""
        self._rows: dict[str, ResidentBuild] = {}
        self._residents: tuple[ResidentBuild, ...] | None = ()
        self._leaving: set[str] = set()
        self._leavers: frozenset[str] | None = frozenset()
        self._here: set[str] = set()
        self._awake: frozenset[str] | None = frozenset()
        self._asleep: dict[str, int] = {}
        self._kept: dict[str, int] = {}

    def follow(self, before: str | None, after: str | None) -> None:
        """A load under way comes in the place of build `after`, no longer of `before`."""
        if before is not None:
            self.followed -= Counter((before,))
            self.changed.add(before)
        if after is not None:
            self.followed[after] += 1
            self.changed.add(after)

    def residents(self) -> tuple[ResidentBuild, ...]:
        """What is in memory or on its way there, by id; the row of a build that has not changed is the same object."""
        self._look()
        if self._residents is None:
            self._residents = tuple(sorted(self._rows.values(), key=_BY_ID))
        return self._residents

    def awake(self) -> frozenset[str]:
        """Builds on which a request would be warm now; the same object until one comes or goes."""
        self._look()
        if self._awake is None:
            self._awake = frozenset(self._here)
        return self._awake

    def leavers(self) -> frozenset[str]:
        """Builds on their way out, or waiting for room."""
        self._look()
        if self._leavers is None:
            self._leavers = frozenset(self._leaving)
        return self._leavers

    def asleep(self) -> Mapping[str, int]:
        """Builds that sleep, or wait for room to wake, and what they keep."""
        self._look()
        return self._asleep

    def kept(self) -> Mapping[str, int]:
        """Builds that sleep, and those on their way there, and what they keep."""
        self._look()
        return self._kept

    def _look(self) -> None:
        if not self.changed:
            return
        changed, asleep = set(self.changed), dict(self._asleep)
        self.changed.clear()
        for build_id in changed:
            self._look_at(build_id, self._build_of(build_id), asleep)
        if asleep != self._asleep:
            self._asleep = asleep

    def _look_at(self, build_id: str, build: LoadedBuild | None, asleep: dict[str, int]) -> None:
        state = None if build is None else build.state
        if build is not None and state in _COMING and build.is_there:
            row = ResidentBuild(
                build_id,
                build.bytes,
                build.last_used_ns,
                build.pins > 0 or state is _S.LOADING or build_id in self.followed,
                self._kept_when_gone(build),
            )
            if self._rows.get(build_id) != row:
                self._rows[build_id] = row
                self._residents = None
        elif self._rows.pop(build_id, None) is not None:
            self._residents = None
        is_waiting = build is not None and state is _S.LOADING and not build.is_there
        waits_to_wake = is_waiting and build is not None and build.handle is not None
        _put(asleep, build_id, build, state is _S.ASLEEP or waits_to_wake)
        _put(self._kept, build_id, build, state in (_S.ASLEEP, _S.UNLOADING))
        if (state is _S.RESIDENT) is not (build_id in self._here):
            self._here ^= {build_id}
            self._awake = None
        is_leaving = is_waiting or state in (_S.UNLOADING, _S.DRAINING)
        if is_leaving is not (build_id in self._leaving):
            self._leaving ^= {build_id}
            self._leavers = None


def _put(kept: dict[str, int], build_id: str, build: LoadedBuild | None, is_in: bool) -> None:
    if is_in and build is not None:
        kept[build_id] = build.kept_bytes
    else:
        kept.pop(build_id, None)
