"""Runs of one build at once on one processor: which numbers of them are timed, and what a profile that lacks some of
these times says all the same.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from appliance.domain.catalogue import Latency

INTERFERING_MS_MIN = 0.5
"""Runs of a build whose batches all take less alone are not timed several at once, as long as there is a core for each:
it would be the interpreter's lock that is measured. One longer batch is enough for all: plans compare batches at the
same number of runs at once, and take a batch without it for no choice.
"""


@dataclass(frozen=True, slots=True)
class RunsAtOnce:
    """How many runs a processor takes at once, and how many of these wait for no core."""

    workers: int
    cores: int

    def to_time(self, alone_ms: Sequence[float]) -> list[int]:
        """Return how many runs at once are timed of a build beside one alone: 2, 4, 8 and so on, and as many as there
        are workers. `alone_ms`: the medians of its batches, alone.
        """
        steps = [1 << at for at in range(1, self.workers.bit_length()) if 1 << at < self.workers]
        all_steps = [*steps, self.workers] if self.workers > 1 else []
        return [count for count in all_steps if self._interfere(count, alone_ms)]

    def missing(self, rows: Sequence[Latency]) -> list[int]:
        """Return the numbers of runs at once that lack a time: of all batches, or of a smaller one than some that has
        it. Larger ones may be too large for so many at once.
        """
        alone = [row for row in rows if row.concurrency == 1]
        batches = sorted(row.batch for row in alone)
        timed = {
            count: sorted(row.batch for row in rows if row.concurrency == count) for count in self.to_time(_ms(alone))
        }
        return [count for count, found in timed.items() if found != batches[: max(1, len(found))]]

    def bounded(self, rows: Sequence[Latency]) -> tuple[Latency, ...]:
        """Return the rows, with further ones for numbers of runs at once of which none was timed: as if the runs beyond
        those that are known brought nothing.
        """
        alone_ms = _ms([row for row in rows if row.concurrency == 1])
        timed = {row.concurrency for row in rows}
        found = list(rows)
        for count in self.to_time(alone_ms) if timed else ():
            if count not in timed:
                known = max(n for n in range(1, count) if n in timed or not self._interfere(n, alone_ms))
                times, below = count / known, max(n for n in timed if n < count)
                found += [
                    replace(row, p50_ms=times * row.p50_ms, p99_ms=times * row.p99_ms, concurrency=count)
                    for row in rows
                    if row.concurrency == below
                ]
        return tuple(found)

    def _interfere(self, count: int, alone_ms: Sequence[float]) -> bool:
        return count > 1 and (count > self.cores or any(ms >= INTERFERING_MS_MIN for ms in alone_ms))


def _ms(rows: Sequence[Latency]) -> list[float]:
    return [row.p50_ms for row in rows]
