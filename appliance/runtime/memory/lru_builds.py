"""Least recently used: the classic baseline."""

from appliance.runtime.memory.room import RoomPlan, RoomProblem


class LeastRecentlyUsed:
    """Unload unpinned builds, longest unused first, until the wanted one fits; O(n log n). Ties: build id."""

    def plan(self, problem: RoomProblem) -> RoomPlan:
        missing = problem.need_bytes - problem.free_bytes
        victims: list[str] = []
        freed = 0
        for build in sorted(problem.resident, key=lambda b: (b.last_used_ns, b.build_id)):
            if freed >= missing:
                break
            if not build.pinned:
                victims.append(build.build_id)
                freed += build.bytes
        if freed < missing:
            return RoomPlan((), 0, False, f"{missing - freed} bytes are missing even without every unpinned build")
        return RoomPlan(tuple(victims), freed, True, f"{len(victims)} least recently used builds free {freed} bytes")
