"""How many runs of one build at once pay on a processor, by what the import measured; pure."""

from collections.abc import Sequence
from itertools import pairwise

from appliance.domain.catalogue import Latency

GROWTH_MIN = 0.05
"""Share by which throughput must grow with a further stream of a device: what one run takes longer by others' is felt
by all of them. A worker on cores of its own would idle, so there it must not fall by as much.
"""


def runs_at_once(latencies: Sequence[Latency], *, on_cores: bool) -> int | None:
    """Runs of the smallest batch that was timed, as long as each measured step brings more (Scrooge §3.2: capacity at
    the throughput maximum); None: as many as there are workers, or nobody has measured it.

    `latencies` as in `Profile`; `on_cores`: each worker has a core, on a device they are streams of it.
    """
    least = min((row.batch for row in latencies), default=0)
    rows = sorted((row for row in latencies if row.batch == least), key=lambda row: row.concurrency)
    growth_min = -GROWTH_MIN if on_cores else GROWTH_MIN
    for kept, more in pairwise(rows):
        if more.concurrency * kept.p50_ms < (1 + growth_min) * kept.concurrency * more.p50_ms:
            return kept.concurrency
    return None
