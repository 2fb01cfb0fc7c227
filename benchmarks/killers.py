"""Requests that kill or freeze whatever runs them, in random order, beside another tenant who asks 20 times a second.

Asked: none of the other tenant's requests fails, none waits longer than 300 ms, the service never restarts. A variant
that is put away is released at once, so that every request reaches its graph.
"""

import argparse
import tempfile
import threading
import time
from collections import Counter
from pathlib import Path
from random import Random

import httpx

from tests.attacks.corpus.requests import KILLERS
from tests.attacks.killer_box import HONEST, client_of, killer_box, new_key, sent
from tests.e2e.server import Server

EVERY_S = 0.05


class Honest(threading.Thread):
    """Asks the other tenant's model until it is told to stop, and keeps how long each answer took."""

    def __init__(self, client: httpx.Client) -> None:
        super().__init__(daemon=True)
        self._client = client
        self._ended = threading.Event()
        self.took_s: list[float] = []
        self.failures = 0

    def run(self) -> None:
        while not self._ended.wait(EVERY_S):
            start_s = time.perf_counter()
            try:
                answer = self._client.post("/v2/models/add/infer", json=HONEST)
                self.failures += answer.status_code != 200 or answer.json()["outputs"][0]["data"] != [2.0] * 4
            except httpx.HTTPError:
                self.failures += 1
            self.took_s.append(time.perf_counter() - start_s)

    def end(self) -> None:
        self._ended.set()
        self.join()


def main() -> None:
    """Print what was answered, and what it cost the other tenant."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--requests", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, killer_box(Path(folder)) as box:
        with client_of(box, new_key(box, "hostile")) as hostile, client_of(box, new_key(box, "quiet")) as quiet:
            alone = _asked(quiet, 100)
            honest = Honest(quiet)
            honest.start()
            statuses = _attack(box, hostile, options.requests, Random(options.seed))
            honest.end()
        restarts = int(box.process.poll() is not None)
    for (name, status), count in sorted(statuses.items()):
        print(f"{name}: {status} x {count}")
    took_ms = sorted(1e3 * took for took in honest.took_s)
    print(
        f"the other tenant: {len(took_ms)} requests, {honest.failures} failed, median {took_ms[len(took_ms) // 2]:.1f} "
        f"ms, longest {took_ms[-1]:.0f} ms (alone {alone:.0f} ms); the service ended {restarts} times"
    )


def _attack(box: Server, hostile: httpx.Client, count: int, chance: Random) -> Counter[tuple[str, int]]:
    statuses: Counter[tuple[str, int]] = Counter()
    for _ in range(count):
        attack = chance.choice(KILLERS)
        statuses[attack.name, sent(hostile, attack).status_code] += 1
        for model in hostile.get("/v1/models").json()["items"]:
            for variant in hostile.get(f"/v1/models/{model['name']}/variants").json()["items"]:
                if variant["state"] == "quarantined":
                    where = f"/v1/models/{model['name']}/variants/{variant['name']}/release"
                    hostile.post(where).raise_for_status()
        if box.process.poll() is not None:
            break
    return statuses


def _asked(quiet: httpx.Client, count: int) -> float:
    """The longest of so many answers, ms."""
    longest_s = 0.0
    for _ in range(count):
        start_s = time.perf_counter()
        quiet.post("/v2/models/add/infer", json=HONEST).raise_for_status()
        longest_s = max(longest_s, time.perf_counter() - start_s)
        time.sleep(EVERY_S)
    return 1e3 * longest_s


if __name__ == "__main__":
    main()
