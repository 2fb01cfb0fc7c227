"""Figures of a benchmark: printed as they come, and with `--json FILE` written with options, machine and date.

A program makes its parser with `parser`, reads its options with `options`, and tells its figures with `row`, `head` and
`cells`. The file is written when the program ends, with what it has found by then:
{"program", "options", "machine", "date", "rows"}.
"""

import argparse
import atexit
import json
import os
import platform
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any, TypeVar

Found = TypeVar("Found")
_LOOPS = 200_000
_rows: list[dict[str, Any]] = []
_heads: list[str] = []


def parser(doc: str | None, **more: Any) -> argparse.ArgumentParser:
    """A parser with `--json`, whose help is a module's docstring."""
    made = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter, **more)
    made.add_argument("--json", type=Path, metavar="FILE", help="write the figures there, too")
    return made


def options(made: argparse.ArgumentParser, arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """Parse the command line; the file, where one is asked for, is written at the program's end."""
    found = made.parse_args(arguments)
    if found.json is not None:
        atexit.register(_write, found)
    return found


def row(what: str, *, asked: Any = "", **figures: Any) -> None:
    """Print and keep figures. `asked`: what they should be; the names of figures end in their units."""
    shown = ", ".join(f"{name.replace('_', ' ')} {text(value)}" for name, value in figures.items())
    print(f"{what}: {shown}{f' (asked {asked})' if asked else ''}", flush=True)
    _rows.append({"what": what, **figures, **({"asked": asked} if asked else {})})


def head(*names: str, title: str = "") -> None:
    """Begin a Markdown table."""
    _heads[:] = names
    print(f"{f'## {title}' if title else ''}\n\n| {' | '.join(names)} |\n|{' --- |' * len(names)}", flush=True)
    if title:
        _rows.append({"table": title})


def cells(*values: Any) -> None:
    """Print and keep a row of the table that was begun."""
    print(f"| {' | '.join(map(text, values))} |", flush=True)
    _rows.append(dict(zip(_heads, values, strict=True)))


def say(words: str) -> None:
    """Print a remark, which is kept among the rows."""
    print(words, flush=True)
    _rows.append({"remark": words.strip()})


def spread(values: Sequence[float]) -> dict[str, Any]:
    """Median and range of some rounds, as figures of a row."""
    return {"median": statistics.median(values), "least": min(values), "most": max(values)}


def percentile(values: Sequence[float], percent: int) -> float:
    """The nearest rank; NaN of nothing."""
    ordered = sorted(values)
    return ordered[max(0, -(-percent * len(ordered) // 100) - 1)] if ordered else float("nan")


def percentiles(times_ms: Sequence[float], *percents: int) -> dict[str, Any]:
    """Percentiles of milliseconds as figures of a row."""
    return {f"P{percent}_ms": percentile(times_ms, percent) for percent in percents}


def spent(call: Callable[[], Found]) -> tuple[Found, float]:
    """What a call returns, and the milliseconds of processor time that it took."""
    start_ns = time.process_time_ns()
    found = call()
    return found, (time.process_time_ns() - start_ns) / 1e6


def took_ms(call: Callable[[], object]) -> float:
    """How long a call took."""
    start = time.perf_counter()
    call()
    return (time.perf_counter() - start) * 1e3


def ratios(above: Sequence[float], below: Sequence[float]) -> list[float]:
    """One over the other, round by round."""
    return [one / other for one, other in zip(above, below, strict=True)]


def text(value: Any) -> str:
    """A figure as it is printed: three or four digits that count."""
    if not isinstance(value, float):
        return str(value)
    size = abs(value)
    return f"{value:.{0 if size >= 1000 else 1 if size >= 100 else 2 if size >= 10 else 3}f}"


def machine() -> dict[str, Any]:
    """What figures depend on. `loop_ms`: of one core for a loop of 200,000 additions, so that machines compare."""
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    start = time.process_time()
    total = 0
    for number in range(_LOOPS):
        total += number
    return {
        "cpu": names[0] if names else platform.machine(),
        "cores": len(os.sched_getaffinity(0)),
        "load": round(os.getloadavg()[0], 1),
        "loop_ms": round((time.process_time() - start) * 1e3, 2),
        "python": platform.python_version(),
        "onnxruntime": version("onnxruntime"),
    }


def _write(found: argparse.Namespace) -> None:
    written = {
        "program": Path(sys.argv[0]).stem,
        "options": {name: value for name, value in vars(found).items() if name != "json"},
        "machine": machine(),
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "rows": json.loads(json.dumps(_rows, default=str), parse_constant=lambda _: None),  # null, not NaN
    }
    found.json.write_text(json.dumps(written, indent=1, ensure_ascii=False, default=str) + "\n")
