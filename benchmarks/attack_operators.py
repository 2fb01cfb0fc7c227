"""Hostile values and shapes in every reviewed operator: how many cases, and which of them end a process.

Options: `--examples N` of each network (200). A name in `ended` does not belong on the list of
`modelstore.stages.operators`.
"""

import argparse
import json
from collections import Counter

from tests.attacks.operators import NETWORKS, Child, attack, is_harmless


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--examples", type=int, default=200)
    examples: int = parser.parse_args().examples
    child, answers, ended = Child(), Counter[str](), {}
    for network in NETWORKS:
        seen: list[str] = []
        attack(network, child, examples, seen.append)
        answers.update(seen)
        if found := sorted({answer for answer in seen if not is_harmless(answer)}):
            ended[network.name] = found
    child.close()
    print(json.dumps({"networks": len(NETWORKS), "answers": answers, "ended": ended}, indent=1))


if __name__ == "__main__":
    main()
