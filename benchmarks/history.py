"""What a month of history takes on disk, how long one series of a day takes to read, and how long a minute and an hour
take to write.

Asked: at most 40 MB for 400 series, at most 50 ms for one series of a day. Every sample of every series is there and
noise, which no box comes near.
"""

import argparse
import statistics
import tempfile
import time
from pathlib import Path

import numpy as np

from appliance.history.file import HistoryFile
from appliance.history.pieces import DAY_S, HOUR_S, MINUTE_S, STEP_S

START = 20_000 * DAY_S


def main() -> None:
    """Print the figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--series", type=int, default=400)
    parser.add_argument("--days", type=int, default=30)
    options = parser.parse_args()
    random = np.random.default_rng(1)
    names = ["up", *(f"memory:t{number}" for number in range(options.series - 1))]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "history.db"
        file = HistoryFile(path, days=options.days, series_max=options.series)
        end = START + options.days * DAY_S + 30 * MINUTE_S
        hours: list[float] = []
        for hour in range(START, end, HOUR_S):
            slots = range(hour, min(end, hour + HOUR_S), STEP_S)
            values = np.exp(random.normal(0, 4, (len(slots), len(names)))).tolist()
            file.write({slot: dict(zip(names, row, strict=True)) for slot, row in zip(slots, values, strict=True)})
            began = time.perf_counter()
            file.fold(hour + HOUR_S if hour + HOUR_S <= end else end)
            hours.append(time.perf_counter() - began)
        began = time.perf_counter()
        file.write({end + STEP_S * place: dict(zip(names, row, strict=True)) for place, row in enumerate(values[:6])})
        minute = time.perf_counter() - began
        size = sum(Path(f"{path}{ending}").stat().st_size for ending in ("", "-wal"))
        print(f"{options.series} series, {options.days} days: {size / 1e6:.1f} MB (asked: 40)")
        for what, span, is_fine in (("a day", DAY_S, True), ("a month", options.days * DAY_S, False)):
            times: list[float] = []
            for name in names[1:20]:
                began = time.perf_counter()
                file.read([name], end - span, end, is_fine=is_fine)
                times.append(1000 * (time.perf_counter() - began))
            print(
                f"one series of {what}: {statistics.median(times):.1f} ms, most {max(times):.1f} (asked of a day: 50)"
            )
        hours.sort()
        print(
            f"a minute is written in {1000 * minute:.1f} ms; an hour folded in {1000 * statistics.median(hours):.0f} ms"
        )
        print(f"  the longest, with a day, in {1000 * hours[-1]:.0f} ms")
        file.close()


if __name__ == "__main__":
    main()
