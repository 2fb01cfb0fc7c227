"""How long planning holds the event loop, with 40 and with 1,000 sessions, and how long decisions take.

Asked of 40 sessions, 10 of them waiting: decisions ≤ 20 ms at P99, the event loop held ≤ 5 ms. A whole box in this
process, without devices: what is timed is planning alone. A hold is the processor time between two turns of the event
loop, so that others on the machine count for nothing.
"""

import argparse
import asyncio
import gc
import tempfile
import time
from contextlib import AsyncExitStack
from pathlib import Path

import uvloop

from appliance import log
from appliance.demo.zoo import toys
from appliance.domain.session import AccuracyPromise, LatencyPromise, Promise
from appliance.runtime.sessions.limits import Limits
from appliance.runtime.sessions.orders import JoinOrder
from tests.api.stand import furnish, running

LONG_S = 0.005


class Holds:
    """Processor time between turns of the event loop."""

    def __init__(self) -> None:
        self.times_s: list[float] = []
        self.turns = 0

    async def watch(self) -> None:
        last_s = time.thread_time()
        while True:
            await asyncio.sleep(0)
            now_s = time.thread_time()
            self.turns += 1
            if now_s - last_s > 0.0005:
                self.times_s.append(now_s - last_s)
            last_s = now_s


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--counts", type=int, nargs="+", default=[40, 1000])
    parser.add_argument("--kinds", type=int, default=8, help="least accuracies that sessions differ in")
    parser.add_argument("--accuracy", type=float, default=0.25, help="share of promises of accuracy")
    parser.add_argument("--seconds", type=float, default=10.0)
    options = parser.parse_args()
    log.configure("error", "json")
    with tempfile.TemporaryDirectory() as name, asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        folder = Path(name)
        runner.run(furnish(folder / "state", toys.digits(folder / "digits")))
        print("| sessions | waiting | longest hold, ms | holds > 5 ms | decisions | mean, ms | P99, ms | plans |")
        print("| --- | --- | --- | --- | --- | --- | --- | --- |")
        for count in options.counts:
            print(runner.run(_measured(folder / "state", count, options)))


async def _measured(state: Path, count: int, options: argparse.Namespace) -> str:
    limits = {"per_tenant_max": 4096, "all_max": 4096}
    async with running(state, sessions=limits) as appliance, AsyncExitStack() as streams:
        box = appliance.running()
        sessions, planning = box.sessions, box.sessions.planning
        sessions.register.limits = Limits(**limits, pools_max=4096)
        application = box.catalogue.entry("harbour/digits").application
        for number in range(count):
            waits = number >= count - count // 4
            live = await sessions.join(_order(application.id, number, options, waits=waits))
            streams.enter_context(sessions.attached(live))  # who has none and is silent is planned no more
        waiting = sum(live.state.value == "waiting" for live in sessions.live.values())
        gc.freeze()  # as the server does when it is ready
        await asyncio.sleep(2)
        holds, before = Holds(), planning.figures.plans
        watching = asyncio.create_task(holds.watch())
        await asyncio.sleep(options.seconds)
        watching.cancel()
        decisions, mean_ms, p99_ms = planning.decision_ms()
        longest_ms = max(holds.times_s, default=0.0) * 1e3
        long = sum(one > LONG_S for one in holds.times_s)
        plans = planning.figures.plans - before
        for live in list(sessions.live.values()):
            await sessions.end(live)
    return f"| {count} | {waiting} | {longest_ms:.1f} | {long} | {decisions} | {mean_ms:.1f} | {p99_ms:.1f} | {plans} |"


def _order(application_id: str, number: int, options: argparse.Namespace, *, waits: bool) -> JoinOrder:
    promise: Promise
    if waits:
        promise = LatencyPromise(1.0, 10.0)  # sooner than anything is answered
    elif number % 100 < 100 * options.accuracy:
        promise = AccuracyPromise(0.3)
    else:
        promise = LatencyPromise(500.0 + number % 7, 0.1, number % options.kinds / 10.0 or None)
    return JoinOrder("harbour", "key", application_id, 10.0, promise, wait=True, rtt_ms=5.0, uplink_bps=50e6)


if __name__ == "__main__":
    main()
