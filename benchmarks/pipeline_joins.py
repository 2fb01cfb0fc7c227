"""What clients that join and leave cost the event loop, and how long one waits where all pipelines have changed.

`pipeline_joins.py [--pipelines 8 64] [--rounds 40] [--fps 0.2]`. Pipelines that find, crop and read, each with three
variants and batches up to 16. First in virtual time, without frames: processor time of all but the policy and what is
pickled for its process, for each client that joins or leaves, five a second. Then in real time with the process that
plans: a client joins where clients of all other pipelines have just changed their rates.
"""

import argparse
import asyncio
import statistics
import time
from collections.abc import Callable
from typing import Any, TypeVar

from appliance.domain.pipeline import PipelineClient
from appliance.runtime.pipelines.chunks import answered, order_of, read_answer
from appliance.runtime.pipelines.process_background import ProcessBackground
from appliance.runtime.sessions.planner_process import PlannerEnded, PlannerNotBegun, PlannerProcess
from tests.fakes.clock import run_virtual
from tests.fakes.processor import Cost
from tests.runtime.pipelines.bench import Fed, PlanningBench

T = TypeVar("T")
BATCHES = (2, 4, 8, 16)
FIND_MS = {"fine": 20.0, "middle": 15.0, "coarse": 10.0}
READ_MS = {"fine": 8.0, "middle": 6.0, "coarse": 4.0}
EVERY_S = 0.2
SETTLED_S = 6.0


def _costs(times_ms: dict[str, float]) -> dict[str, Cost]:
    return {
        name: Cost(run_ms=ms, resident_bytes=int(ms), run_ms_by_batch={b: ms * (0.15 + 0.85 * b) for b in BATCHES})
        for name, ms in times_ms.items()
    }


def _bench(background: Callable[[Callable[[], Any]], Any], count: int) -> tuple[PlanningBench, list[Fed]]:
    bench = PlanningBench(_costs(FIND_MS), _costs(READ_MS), budget=10_000)
    bench.planning._parts.solver._background = background
    return bench, [bench.add(f"p{number:02}") for number in range(count)]


def joins_and_leaves_ms(count: int, rounds: int, fps: float) -> float:
    """Processor time of the event loop for each, beside so many pipelines with a client each."""
    away_s = 0.0
    found_ms = 0.0

    async def background(compute: Callable[[], T]) -> T:
        nonlocal away_s
        order = await order_of(compute)
        begun_s = time.process_time()
        written = answered(order)
        away_s += time.process_time() - begun_s
        made: T = await read_answer(written)
        return made

    async def tell() -> None:
        nonlocal away_s, found_ms
        bench, pipelines = _bench(background, count)
        async with bench.working():
            for number, live in enumerate(pipelines):
                live.clients.join(PipelineClient(f"s{number}", live.pipeline.id, fps, True), bench.now_ns)
            await bench.pause(SETTLED_S)
            away_s, begun_s = 0.0, time.process_time()
            for number in range(rounds):
                live = pipelines[number // 2 % count]
                if number % 2:
                    live.clients.leave("c")
                    bench.planning.wake()
                else:
                    await bench.join(live, fps, "c")
                await bench.pause(EVERY_S)
            found_ms = 1e3 * (time.process_time() - begun_s - away_s) / rounds

    run_virtual(tell)
    return found_ms


async def join_beside_changed_s(count: int, rounds: int, fps: float) -> list[float]:
    """How long a client waits that joins where those of so many other pipelines have just changed."""
    process = PlannerProcess()
    bench, pipelines = _bench(ProcessBackground(process, PlannerEnded, PlannerNotBegun, asyncio.to_thread), count + 1)
    *others, last = pipelines
    found = []
    async with bench.working():
        for number, live in enumerate(others):
            live.clients.join(PipelineClient(f"s{number}", live.pipeline.id, fps, True), bench.now_ns)
        await bench.pause(SETTLED_S)
        for turn in range(rounds):
            for number, live in enumerate(others):
                live.clients.change(f"s{number}", fps * (1.0 if turn % 2 else 1.3))
            bench.planning.wake()
            begun_s = time.monotonic()
            await bench.pause(0.02)
            await bench.join(last, fps, f"c{turn}")
            found.append(time.monotonic() - begun_s)
            last.clients.leave(f"c{turn}")
            await bench.pause(SETTLED_S)
    await process.close()
    return found


def main() -> None:
    """Print both."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pipelines", type=int, nargs="+", default=[8, 64])
    parser.add_argument("--rounds", type=int, default=40)
    parser.add_argument("--joins", type=int, default=5, help="in real time")
    parser.add_argument("--fps", type=float, default=0.2, help="frames a second of each client")
    options = parser.parse_args()
    for count in options.pipelines:
        took_ms = joins_and_leaves_ms(count, options.rounds, options.fps)
        waits_s = asyncio.run(join_beside_changed_s(count, options.joins, options.fps))
        print(
            f"{count} pipelines: {took_ms:.2f} ms of the event loop's processor time a client that joins or leaves; a "
            f"join where all have changed {statistics.median(waits_s):.2f} s ({min(waits_s):.2f}-{max(waits_s):.2f})",
            flush=True,
        )


if __name__ == "__main__":
    main()
