"""A box that tells of itself in one network namespace, and who looks in another: how soon it is found by who begins to
look, how soon by who looks already, and how soon it is gone after its stop.

Asked: found ≤ 2 s, gone ≤ 1 s. Takes root and the extra `discovery`. `--flood`: meanwhile a third party sends malformed
messages and boxes that there are not.
"""

import argparse
import statistics
import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from tests.discovery.networks import FLOODING, inside, networks_joined

ROUNDS = 7
LOOKING = """
import asyncio, sys, time
from zeroconf import DNSQuestionType, ServiceStateChange
from zeroconf.asyncio import AsyncServiceBrowser, AsyncZeroconf
from appliance.discovery.service import TYPE

def changed(zeroconf, service_type, name, state_change):
    if name.startswith("box."):
        print(state_change.name, time.monotonic(), flush=True)

async def main():
    print("Begun", time.monotonic(), flush=True)
    responder = AsyncZeroconf()
    browser = AsyncServiceBrowser(responder.zeroconf, TYPE, handlers=[changed], question_type=DNSQuestionType.QM)
    await asyncio.to_thread(sys.stdin.readline)
    await browser.async_cancel()
    await responder.async_close()

asyncio.run(main())
"""


@contextmanager
def looking(space: str) -> Iterator["subprocess.Popen[str]"]:
    with subprocess.Popen(inside(space, "-c", LOOKING), stdin=-1, stdout=-1, text=True) as process:
        try:
            yield process
        finally:
            process.kill()


def at(process: "subprocess.Popen[str]", word: str) -> float:
    """When it said so."""
    assert process.stdout is not None
    for line in process.stdout:
        if line.split()[0] == word:
            return float(line.split()[1])
    raise AssertionError(word)


def main() -> None:
    """Print medians of the rounds, and the worst."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--flood", action="store_true")
    options = parser.parse_args()
    figures: dict[str, list[float]] = {"found": [], "found by who looks already": [], "gone": []}
    announcing = Path("tests/discovery/announcing.py").resolve()
    with networks_joined() as (a, b), ExitStack() as stack:
        if options.flood:
            stranger = stack.enter_context(subprocess.Popen(inside(b, str(FLOODING), "10.97.0.2", "600"), stdout=-1))
            stack.callback(stranger.kill)
        for _ in range(ROUNDS):
            with (
                looking(b) as early,
                subprocess.Popen(inside(a, str(announcing), "box"), stdin=-1, stdout=-1, text=True) as box,
            ):
                at(early, "Begun")
                assert box.stdout is not None
                assert box.stdin is not None
                told = next(time.monotonic() for line in box.stdout if line == "told\n")
                figures["found by who looks already"].append(at(early, "Added") - told)
                with looking(b) as late:
                    began = at(late, "Begun")
                    figures["found"].append(at(late, "Added") - began)
                stopped = time.monotonic()
                box.stdin.write("\n")
                box.stdin.flush()
                figures["gone"].append(at(early, "Removed") - stopped)
                box.wait()
    for what, seconds in figures.items():
        print(f"{what}: {statistics.median(seconds):.2f} s, at most {max(seconds):.2f}")


if __name__ == "__main__":
    main()
