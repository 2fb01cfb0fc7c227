"""Dispatch (Band): processor time of a decision of a box, from the queue to the request that begins on an idle worker.

44 callers of four applications ask again and again, in virtual time, of four processors with a worker each: 40 requests
wait, of which a box weighs 32. What is timed is the scheduler whole: whose turn it is, who is in time where, and what
the policy answers. The same run `--rounds` times; of each decision the least counts, so that what else the machine does
says little. The policy by itself: `planners dispatch`.
"""

import argparse
import asyncio
import statistics
import time
from typing import Any

from tests.fakes.clock import story
from tests.fakes.engine import EngineBench
from tests.fakes.processor import Cost

RUN_MS = (5, 10, 15, 20)
TWINS = ((1, 2.0, 0.5), (1, 3.0, 1 / 3), (1, 4.0, 0.25))
CALLERS = 44


def took_ms(each: int) -> list[float]:
    """Of every decision by which a request began while so many waited."""
    took: list[float] = []

    @story
    async def body() -> None:
        bench = EngineBench(1000, twins=TWINS, queue_len=100)
        for at, run_ms in enumerate(RUN_MS):
            bench.add({"v": Cost(run_ms=run_ms, load_ms=0)}, name=f"app{at}")
        async with bench.working():
            scheduler = bench.engine._scheduler
            assert scheduler is not None
            decide = scheduler._next

            def timed() -> Any:
                waiting = len(scheduler._queue)
                start_ns = time.process_time_ns()
                found = decide()
                end_ns = time.process_time_ns()
                if found is not None and waiting >= CALLERS - len(TWINS) - 1:
                    took.append((end_ns - start_ns) / 1e6)
                return found

            scheduler._next = timed  # type: ignore[method-assign]

            async def caller(at: int) -> None:
                for count in range(each):
                    within_ms = 5_000 + (at * 7919 + count * 104_729) % 5_000
                    await bench.infer(application=f"t/app{at % len(RUN_MS)}", within_ms=within_ms)

            await asyncio.gather(*(caller(at) for at in range(CALLERS)))

    body()
    return took


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--each", type=int, default=20, help="requests of a caller")
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    rounds = [took_ms(options.each) for _ in range(options.rounds)]
    least = [min(decision) for decision in zip(*rounds, strict=True)]
    p99_ms = statistics.quantiles(least, n=100)[98]
    print(f"{len(least)} decisions: mean {statistics.mean(least):.4f} ms, P99 {p99_ms:.4f}, of which the least each")


if __name__ == "__main__":
    main()
