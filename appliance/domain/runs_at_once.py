"""Runs of one build at once on one processor: how many at once an import times, and what is assumed where a profile
lacks such a time.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from appliance.domain.catalogue import Latency

INTERFERING_MS_MIN = 0.5
"""Milliseconds of a run alone. Shorter runs are not timed several at once where each has a core: the interpreter's lock
would be measured. One batch with longer runs is enough for all batches of a build, because plans compare batches at the
same number of runs at once, and do not choose a batch that lacks this time.
"""


@dataclass(frozen=True, slots=True)
class RunsAtOnce:
    """Workers of a processor, each of which has one run at a time, and the cores that they share."""

    workers: int
    cores: int

    def to_time(self, alone_ms: Sequence[float]) -> list[int]:
        """Return the numbers of runs at once that are timed of a build: 2, 4, 8 and so on, and that of the workers.

        `alone_ms`: median times of runs of its batches, alone.
        """
        steps = [1 << at for at in range(1, self.workers.bit_length()) if 1 << at < self.workers]
        all_steps = [*steps, self.workers] if self.workers > 1 else []
        return [count for count in all_steps if self._interfere(count, alone_ms)]

    def missing(self, rows: Sequence[Latency]) -> list[int]:
        """Return the numbers of runs at once that lack times: those of all batches, or that of a batch smaller than one
        that has it. Larger batches may be too large for so many runs at once.
        """
        alone = [row for row in rows if row.concurrency == 1]
        batches = sorted(row.batch for row in alone)
        timed = {
            count: sorted(row.batch for row in rows if row.concurrency == count) for count in self.to_time(_ms(alone))
        }
        return [count for count, found in timed.items() if found != batches[: max(1, len(found))]]

    def filled(self, rows: Sequence[Latency]) -> tuple[Latency, ...]:
        """Return the rows, and rows for numbers of runs at once that lack all times.

        These assume no more throughput than that of the largest smaller number that has times.
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
