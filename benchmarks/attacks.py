"""Hostile requests, files, operators and generated calls to a real box: wrong endings, against none asked.

corpus     the whole corpus of hostile requests, models and archives: attacks that end otherwise than they must
operators  hostile values and shapes in every reviewed operator: networks that end a process, which do not belong on
           the list of `modelstore.stages.operators`
calls      `--count` (20,000) calls generated from the OpenAPI document as four roles, with stateful links: a 500
           other than `run-crashed`, a status or type that the document does not name, a body that is not as it says
killers    `--count` (200) requests that kill or freeze what runs them, beside a tenant that asks 20 times a second;
           asked: none of its requests fails or takes longer than 300 ms, and the service does not end
"""

import argparse
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from random import Random

import httpx

from benchmarks import _results as results
from tests.attacks.boxes import ROLES, attacked_box
from tests.attacks.corpus import archives, models, requests
from tests.attacks.fuzz import fuzz
from tests.attacks.killer_box import HONEST, client_of, killer_box, new_key, sent
from tests.attacks.operators import NETWORKS, Child, attack, is_harmless
from tests.attacks.running import ask, upload
from tests.e2e.server import Server

EXAMPLES, ROUND_S = 40, 600
"""Generated calls for each operation and phase in a round, and seconds of a round."""
EVERY_S = 0.05


def main() -> None:
    """Run a part; the exit status says whether anything ended wrong."""
    parser = results.parser(__doc__)
    parser.add_argument("--part", choices=PARTS, default="corpus")
    parser.add_argument("--count", type=int, help="calls, or requests")
    parser.add_argument("--examples", type=int, default=200, help="of each network of the part `operators`")
    parser.add_argument("--seed", type=int, default=1)
    options = results.options(parser)
    sys.exit(PARTS[options.part](options) > 0)


def _corpus(options: argparse.Namespace) -> int:
    with tempfile.TemporaryDirectory() as folder, attacked_box(Path(folder)) as box:
        wrong = ask(box, requests.REQUESTS)
        results.row("requests", count=len(requests.REQUESTS))
        for kind, files in (("models", models.FILES), ("archives", archives.FILES)):
            for name in files:
                wrong += upload(box, Path(folder), files, [name])
            results.row(kind, count=len(files))
        assert box.adds(), "the good application does not answer"
        assert "request failed" not in box.server.log()
    return _told(wrong)


def _operators(options: argparse.Namespace) -> int:
    child, answers, wrong = Child(), Counter[str](), list[str]()
    for network in NETWORKS:
        seen: list[str] = []
        attack(network, child, options.examples, seen.append)
        answers.update(seen)
        if found := sorted({answer for answer in seen if not is_harmless(answer)}):
            wrong.append(f"{network.name}: {', '.join(found)}")
    child.close()
    results.row("answers", networks=len(NETWORKS), **answers)
    return _told(wrong)


def _calls(options: argparse.Namespace) -> int:
    """Each role gets a fresh box and, in rounds with other seeds, a quarter of the calls."""
    wrong: dict[str, str] = {}
    for role in ROLES:
        statuses: Counter[str] = Counter()
        seed = options.seed
        while statuses.total() < (options.count or 20_000) / len(ROLES):
            with tempfile.TemporaryDirectory() as folder, attacked_box(Path(folder)) as box:
                found = fuzz(box.server.url, box.keys[role], examples=EXAMPLES, seconds=ROUND_S, seed=seed)
                statuses += found.statuses
                wrong |= {one.partition("\n")[0]: one for one in found.wrong}
                assert box.server.process.poll() is None, "the box is dead"
            seed += 1
        results.row(role, calls=statuses.total(), statuses=dict(sorted(statuses.items())))
    return _told(list(wrong.values()))


def _told(wrong: list[str]) -> int:
    for one in wrong:
        results.say(one)
    results.row("ended wrong", count=len(wrong), asked="none")
    return len(wrong)


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


def _killers(options: argparse.Namespace) -> int:
    with tempfile.TemporaryDirectory() as folder, killer_box(Path(folder)) as box:
        with client_of(box, new_key(box, "hostile")) as hostile, client_of(box, new_key(box, "quiet")) as quiet:
            honest = Honest(quiet)
            honest.start()
            statuses = _attacked(box, hostile, options.count or 200, Random(options.seed))
            honest.end()
        ended = int(box.process.poll() is not None)
    for (name, status), count in sorted(statuses.items()):
        results.row(name, status=status, count=count)
    longest_ms = 1e3 * max(honest.took_s)
    figures = {"P50_ms": 1e3 * results.percentile(honest.took_s, 50), "longest_ms": longest_ms, "service_ended": ended}
    failures = {"requests": len(honest.took_s), "failed": honest.failures}
    results.row("the other tenant", **failures, **figures, asked="none failed, ≤ 300 ms")
    return honest.failures + ended


def _attacked(box: Server, hostile: httpx.Client, count: int, chance: Random) -> Counter[tuple[str, int]]:
    """A variant that is put away is released at once, so that every request reaches its graph."""
    statuses: Counter[tuple[str, int]] = Counter()
    for _ in range(count):
        killer = chance.choice(requests.KILLERS)
        statuses[killer.name, sent(hostile, killer).status_code] += 1
        for model in hostile.get("/v1/models").json()["items"]:
            for variant in hostile.get(f"/v1/models/{model['name']}/variants").json()["items"]:
                if variant["state"] == "quarantined":
                    where = f"/v1/models/{model['name']}/variants/{variant['name']}/release"
                    hostile.post(where).raise_for_status()
        if box.process.poll() is not None:
            break
    return statuses


PARTS: Mapping[str, Callable[[argparse.Namespace], int]] = {
    "corpus": _corpus,
    "operators": _operators,
    "calls": _calls,
    "killers": _killers,
}


if __name__ == "__main__":
    main()
