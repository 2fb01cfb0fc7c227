"""What devices send, in virtual time: transfer times foreseen, and a halved LTE link with an outage.

`--traces FOLDER`: the CSV files of traces (`t_s,hold_s,bandwidth_mbps`, or `time_s,uplink_mbps`) in place of links made
here with their statistics. Asked: median error of the expected transfer time of frames of 6 to 50 kB ≤ 15 % over all
traces; of frames of 40 kB, 15 a second, over LTE halved with an outage of 1.5 s, ≥ 0.80 of the captured within 150 ms
and ≤ 5 % of the sent late. Beside it other ways: everything sent, two under way, the newest two.
"""

import argparse
import csv
from pathlib import Path
from random import Random
from statistics import mean, median

from appliance.policies.sending.transfer import TransferEstimate, Unacknowledged
from tests.instances.sending.links import Link, lte_like, synthetic, wifi_like
from tests.instances.sending.play import Fixed, Way, play, sender

OUTAGE = ((10_000.0, 11_500.0),)
SCALES = (0.5, 0.35, 0.25)
"""Of the LTE trace; over TCP with its losses a half comes to about a third."""


def main() -> None:
    """Two tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--traces", type=Path)
    parser.add_argument("--seconds", type=int, default=40)
    options = parser.parse_args()
    rates = made() if options.traces is None else read(options.traces)
    print("expected transfer time, frames of 6 to 50 kB, 10 a second: median error, 9 of 10 below")
    for name, link_rates in rates.items():
        for round_trip_ms in (8.0, 32.0):
            errors = sorted(foreseen(link_rates, round_trip_ms))
            print(f"  {name}, {round_trip_ms:.0f} ms: {median(errors):.3f}, {errors[len(errors) * 9 // 10]:.3f}")
    lte = next(link_rates for name, link_rates in rates.items() if "lte" in name)
    print("15 frames of some 40 kB a second within 150 ms, outage of 1.5 s: in time of captured, late of sent")
    for scale in SCALES:
        for name in ("everything", "two under way", "the newest two", "fitted"):
            found = [one(name, lte[start:] + lte[:start], scale, options.seconds) for start in range(0, 200, 20)]
            in_time, late = mean(share for share, _ in found), mean(share for _, share in found)
            least = min(share for share, _ in found)
            print(f"  × {scale}, {name}: {in_time:.3f} (least {least:.3f}), {late:.3f}")


def one(name: str, rates: tuple[float, ...], scale: float, seconds: int) -> tuple[float, float]:
    """In time of captured, late of sent."""
    ways: dict[str, Way] = {
        "everything": Fixed(10**9, 150.0, keeps_all=True),
        "two under way": Fixed(2, 150.0, keeps_all=True),
        "the newest two": Fixed(2, 150.0),
        "fitted": sender(15.0, 150.0),
    }
    link = Link(tuple(scale * rate for rate in rates), outages=OUTAGE, jitter_ms=3.0)
    played = play(ways[name], link, fps=15.0, seconds=seconds, deadline_ms=150.0)
    return played.in_time / played.captured, played.late / max(1, played.sent)


def foreseen(rates: tuple[float, ...], round_trip_ms: float) -> list[float]:
    """Relative errors of what was expected of each frame before it was sent."""
    random, link = Random(5), Link(rates, round_trip_ms=round_trip_ms, jitter_ms=0.1 * round_trip_ms)
    estimate, errors, under_way = TransferEstimate(), [], list[tuple[int, float, float]]()
    for at in range(10 * len(rates)):
        now, size = 100.0 * at, int(6000 * (50 / 6) ** random.random())
        for done in [each for each in under_way if each[2] <= now]:
            estimate.observe(*done)
            under_way.remove(done)
        line = estimate.line(now, [Unacknowledged(*each[:2]) for each in under_way])
        acknowledged = link.sent(size, now) + link.one_way_ms()
        errors.append(abs(line.acknowledged_ms(size) - acknowledged) / (acknowledged - now))
        under_way.append((size, now, acknowledged))
    return errors


def made() -> dict[str, tuple[float, ...]]:
    """Links with the statistics of the papers' traces."""
    return {"lte-like": lte_like(1), "wifi-like": wifi_like(1), "synthetic": synthetic()}


def read(folder: Path) -> dict[str, tuple[float, ...]]:
    """Mbit/s by the second."""
    found = {}
    for path in sorted(folder.glob("*trace*.csv")):
        with path.open() as text:
            rows = list(csv.DictReader(text))
        key = "bandwidth_mbps" if "bandwidth_mbps" in rows[0] else "uplink_mbps"
        rates = [float(row[key]) for row in rows for _ in range(int(float(row.get("hold_s", 1))))]
        found[path.stem] = tuple(rates)
    return found


if __name__ == "__main__":
    main()
