"""The ledger's bytes against those that the process really takes, over a thousand random changes of real builds.

Asked: never more than 5 % apart. Loads, runs, sleep, wakes and unloads of seven networks (6 to 103 MB) in a budget of
0.6 of them; Pss of a trimmed heap after each change.
"""

import argparse
import asyncio
import statistics

from benchmarks._real_ledger import off, tell

ASKED = 0.05


def main() -> None:
    """Print how far they were apart."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--changes", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    found = asyncio.run(tell(options.changes, options.seed, large=True))
    shares = sorted(off(found))
    apart = [process - ledger for ledger, process in zip(found["ledger"], found["process"], strict=True)]
    print(f"{options.changes} changes, {found['wakes'][0]} wakes, budget {found['budget'][0] / 1e6:.0f} MB")
    print(f"  apart, as a share: median {statistics.median(shares):.2%}, most {shares[-1]:.2%} (asked: 5 %)")
    print(f"  more than that: {sum(share > ASKED for share in shares)}")
    least, most, last = (figure / 1e6 for figure in (min(apart), max(apart), apart[-1]))
    print(f"  process - ledger: from {least:+.2f} to {most:+.2f} MB; the last {last:+.2f}")


if __name__ == "__main__":
    main()
