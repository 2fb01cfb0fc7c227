"""Loads and unloads of prepared networks, alone and at once: what the lab's emulated processor imitates (one
ResNet-50 and one 60 MB net, copies of each).
"""

import argparse
import shutil
import statistics
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

from appliance.demo.zoo import toys
from appliance.domain.hardware import PreparedForm
from appliance.runtime.processors.cpu.session import Loaded, OnnxSessions
from tests.fakes.forms import prepared_form


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(prog="scripts/bench loads", description=__doc__)
    parser.add_argument("--rounds", type=int, default=9)
    rounds = parser.parse_args().rounds
    sessions = OnnxSessions(threads_per_run=1)
    with tempfile.TemporaryDirectory() as folder:
        forms = _forms(Path(folder), sessions)
        print(
            f"{'network':<22}{'MB':>7}{'load ms':>9}{'2 at once':>11}{'4 at once':>11}{'unload ms':>11}{'largest':>9}"
        )
        for name, copies in forms.items():
            _measure(name, copies, sessions, rounds)


def _forms(folder: Path, sessions: OnnxSessions) -> dict[str, list[PreparedForm]]:
    """Four copies of each network, prepared and plain: builds never share a file."""
    forms: dict[str, list[PreparedForm]] = {}
    for name, source in (
        ("resnet50", toys.resnet50(folder / "resnet50.onnx")),
        ("other", toys.conv_net(folder / "other.onnx", 60)),
    ):
        first = folder / f"{name}-0"
        first.mkdir()
        assert sessions.prepare(source, first)
        for i in range(1, 4):
            shutil.copytree(first, folder / f"{name}-{i}")
        prepared = [prepared_form(f"{name}-{i}", folder / f"{name}-{i}") for i in range(4)]
        forms[f"{name}, prepared"] = [form for form in prepared if form is not None]
        size = source.stat().st_size
        forms[f"{name}, plain"] = [
            PreparedForm(f"{name}-plain-{i}", str(source), size, optimised=False) for i in range(4)
        ]
    return forms


def _measure(name: str, forms: Sequence[PreparedForm], sessions: OnnxSessions, rounds: int) -> None:
    loads_ms: dict[int, list[float]] = {1: [], 2: [], 4: []}
    unloads_ms: list[float] = []
    for _ in range(rounds):
        for count in loads_ms:
            loaded, spent_ms = _at_once([partial(sessions.load, form) for form in forms[:count]])
            loads_ms[count].append(statistics.mean(spent_ms))
            for session in loaded:
                unloads_ms.append(_at_once([partial(sessions.unload, session)])[1][0])
    medians = [statistics.median(loads_ms[count]) for count in (1, 2, 4)]
    columns = "".join(f"{median:>{width}.1f}" for median, width in zip(medians, (9, 11, 11), strict=True))
    print(
        f"{name:<22}{forms[0].size_bytes / 1e6:>7.1f}{columns}"
        f"{statistics.median(unloads_ms):>11.2f}{max(unloads_ms):>9.2f}"
    )


def _at_once(calls: Sequence[Callable[[], Loaded | None]]) -> tuple[list[Loaded], list[float]]:
    """Results and milliseconds of each call, all started together on threads of their own."""
    results: list[Loaded | None] = [None] * len(calls)
    spent_ms = [0.0] * len(calls)
    start = threading.Barrier(len(calls))

    def call(i: int) -> None:
        start.wait()
        begun = time.perf_counter()
        results[i] = calls[i]()
        spent_ms[i] = (time.perf_counter() - begun) * 1e3

    threads = [threading.Thread(target=call, args=(i,)) for i in range(len(calls))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return [result for result in results if result is not None], spent_ms


if __name__ == "__main__":
    main()
