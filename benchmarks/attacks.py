"""Hostile requests, files, operators and generated calls to a real box: wrong endings, against none asked.

corpus     the whole corpus of hostile requests, models and archives: attacks that end otherwise than they must
operators  hostile values and shapes in every reviewed operator: networks that end a process, which do not belong on
           the list of `modelstore.stages.operators`
calls      `--count` (20,000) calls generated from the OpenAPI document as four roles, with stateful links: a 500
           other than `run-crashed`, a status or type that the document does not name, a body that is not as it says
"""

import argparse
import sys
import tempfile
from collections import Counter
from pathlib import Path

from benchmarks import _results as results
from tests.attacks.attacked_box import ROLES, attacked_box
from tests.attacks.corpus import archives, models, requests
from tests.attacks.fuzz import fuzz
from tests.attacks.operators import NETWORKS, Child, attack, is_harmless
from tests.attacks.running import ask, upload

EXAMPLES, ROUND_S = 40, 600
"""Generated calls for each operation and phase in a round, and seconds of a round."""


def main() -> None:
    """Run a part; the exit status says whether anything ended wrong."""
    parser = results.parser(__doc__)
    parser.add_argument("--part", choices=PARTS, default="corpus")
    parser.add_argument("--count", type=int, help="of generated calls")
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


PARTS = {"corpus": _corpus, "operators": _operators, "calls": _calls}


if __name__ == "__main__":
    main()
