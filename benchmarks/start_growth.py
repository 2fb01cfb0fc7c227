"""Start with 7, 300 and 1,000 models: process start to the first answered request of `/v2`, processor and wall time.

The state folder holds copies of one imported model under other names, each with a content of its own; all of them were
in memory at the last stop. Beside it a bare `import numpy, onnxruntime, uvloop`, for how fast the machine is just now.
Asked: 7 models ≤ 1.0 s or five times the bare import, 300 ≤ 1.5 s, 1,000 ≤ 2.5 s.
"""

import argparse
import contextlib
import hashlib
import os
import shutil
import socket
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from appliance.demo.zoo import toys
from benchmarks import _box as boxes

BARE = "import numpy, onnxruntime, uvloop"
NAME = "m0000"
TICKS = os.sysconf("SC_CLK_TCK")


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--counts", type=int, nargs="+", default=[7, 300, 1000])
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    bare = [_bare() for _ in range(options.rounds)]
    print("| models | processor time, s | wall, s | processor time / bare import |")
    print("| --- | --- | --- | --- |")
    bare_s = statistics.median(cpu_s for cpu_s, _ in bare)
    print(f"| bare import | {bare_s:.2f} | {statistics.median(wall_s for _, wall_s in bare):.2f} | 1.0 |")
    for count in options.counts:
        with tempfile.TemporaryDirectory() as folder:
            state = Path(folder) / "state"
            make_state(state, Path(folder), count)
            rounds = [_start(state, count) for _ in range(options.rounds)]
        cpu_s = statistics.median(cpu_s for cpu_s, _ in rounds)
        wall_s = statistics.median(wall_s for _, wall_s in rounds)
        print(f"| {count} | {cpu_s:.2f} | {wall_s:.2f} | {cpu_s / bare_s:.1f} |", flush=True)


def make_state(state: Path, folder: Path, count: int) -> None:
    """A state folder of `count` models, `m0000` the first: one is imported, the others are copies of its rows and
    files.
    """
    with boxes.box(state) as box:
        boxes.await_job(box, boxes.upload(box, NAME, toys.tiny_add(folder / "tiny.onnx"), precisions=["fp32"]))
        _infer(box.port, box.key, NAME)
    with contextlib.closing(sqlite3.connect(state / "appliance.db")) as database, database:
        database.row_factory = sqlite3.Row
        contents = [row["content_sha256"] for row in database.execute("SELECT content_sha256 FROM variant")]
        rows = {
            table: [dict(row) for row in database.execute(f"SELECT * FROM {table}")]
            for table in ("blob", "model", "variant", "variant_number", "application")
        }
        homes = {home.name: home for home in (state / "prepared").glob("*/*")}
        builds = sorted(homes)
        for at in range(1, count):
            name, new = f"m{at:04}", dict[str, str]()
            for old in contents:
                content = _blob(state, old).read_bytes() + _remark(name)
                new[old] = hashlib.sha256(content).hexdigest()
                target = _blob(state, new[old])
                target.parent.mkdir(exist_ok=True, mode=0o700)
                target.write_bytes(content)
                for home in [home for build, home in homes.items() if build.startswith(old)]:
                    shutil.copytree(home, home.with_name(home.name.replace(old, new[old])))
                    builds.append(home.name.replace(old, new[old]))
            for table, those in rows.items():
                for row in those:
                    insert(database, table, _renamed(row, name, new, state))
        database.execute("DELETE FROM resident")
        database.executemany("INSERT INTO resident (position, build_id) VALUES (?, ?)", enumerate(builds))


def _renamed(row: dict[str, Any], name: str, contents: dict[str, str], state: Path) -> dict[str, Any]:
    new = dict(row)
    for key, value in row.items():
        if isinstance(value, str):
            new[key] = contents.get(value, value).replace(NAME, name)
    if "modified_ns" in row:
        file = _blob(state, new["sha256"])
        new |= {"modified_ns": file.stat().st_mtime_ns, "size_bytes": file.stat().st_size}
    return new


def insert(database: sqlite3.Connection, table: str, row: dict[str, Any]) -> None:
    """A row, as it is."""
    marks = ", ".join("?" * len(row))
    database.execute(f"INSERT INTO {table} ({', '.join(row)}) VALUES ({marks})", list(row.values()))


def _blob(state: Path, sha256: str) -> Path:
    return state / "blobs" / sha256[:2] / sha256


def _remark(text: str) -> bytes:
    """The description of an ONNX model, which makes the content another one: the last that a file has counts."""
    return b"\x32" + bytes([len(text)]) + text.encode()


def _bare() -> tuple[float, float]:
    begin, before = time.perf_counter(), os.times()
    subprocess.run([sys.executable, "-c", BARE], check=True)
    after = os.times()
    cpu_s = after.children_user + after.children_system - before.children_user - before.children_system
    return cpu_s, time.perf_counter() - begin


def _start(state: Path, count: int) -> tuple[float, float]:
    """Processor and wall time until an application from the middle has answered."""
    key = (state / "admin.key").read_text().strip()
    address = state / "address"
    begin = time.perf_counter()
    process = subprocess.Popen(
        [sys.executable, "-m", "appliance", "serve", "--state", str(state), "--port", "0"],
        env={**os.environ, "MALLOC_ARENA_MAX": "2", "APPLIANCE_LOG__LEVEL": "warning"},
        stdout=subprocess.DEVNULL,
    )
    try:
        _until(lambda: address.exists() and address.read_text().endswith("\n"), process)
        _infer(int(address.read_text().rsplit(":", 1)[1]), key, f"m{count // 2:04}")
        return _cpu_s(process.pid), time.perf_counter() - begin
    finally:
        process.terminate()
        process.wait(60)


def _until(is_met: Callable[[], bool], process: subprocess.Popen[bytes]) -> None:
    limit = time.perf_counter() + 300
    while not is_met():
        if process.poll() is not None or time.perf_counter() > limit:
            raise RuntimeError("the box did not start")
        time.sleep(0.005)


def _infer(port: int, key: str, name: str) -> None:
    row = np.ones([1, 4], np.float32)
    body, headers = boxes.infer_body({"A": row, "B": row})
    lines = [f"POST /v2/models/{name}/infer HTTP/1.1", "Host: box", f"Authorization: Bearer {key}"]
    lines += [f"{field}: {value}" for field, value in headers.items()]
    lines += [f"Content-Length: {len(body)}", "Connection: close", "", ""]
    with socket.create_connection(("127.0.0.1", port), timeout=300) as connection:
        connection.sendall("\r\n".join(lines).encode() + body)
        answer = b""
        while piece := connection.recv(65536):
            answer += piece
    if not answer.startswith(b"HTTP/1.1 200"):
        raise RuntimeError(answer.decode(errors="replace")[:500])


def _cpu_s(pid: int) -> float:
    """Of the process and its threads, not of its children."""
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


if __name__ == "__main__":
    main()
