"""A child process with an order: its lines, its end, and that nothing of it outlives its time."""

import asyncio
import json
import os
import sys
from pathlib import Path

import pytest

from appliance.child import run_child
from appliance.clock import pause_s

PROGRAM = """
import json, os, subprocess, sys
order = json.load(sys.stdin)
print(json.dumps({"got": order, "pid": os.getpid()}), flush=True)
if sys.argv[1] == "hang":
    grandchild = subprocess.Popen(["sleep", "60"])
    print(json.dumps({"grandchild": grandchild.pid}), flush=True)
    grandchild.wait()
print("said aloud", file=sys.stderr)
sys.exit(int(sys.argv[1]))
"""


def has_ended(pid: int) -> bool:
    """Gone, or nothing but an entry that waits to be read."""
    state = Path(f"/proc/{pid}/stat")
    try:
        return state.read_text().rsplit(")", 1)[1].split()[0] == "Z"
    except OSError:
        return True


def run(folder: Path, argument: str, wall_s: float = 60) -> tuple[list[dict[str, object]], int, str]:
    (folder / "ordered.py").write_text(PROGRAM)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(folder), *sys.path])}
    lines: list[dict[str, object]] = []
    ended = asyncio.run(
        run_child(
            "ordered",
            [argument],
            b'{"a": 1}',
            wall_s=wall_s,
            on_line=lambda line: lines.append(json.loads(line)),
            folder=folder,
            environment=environment,
        )
    )
    return lines, ended.status, ended.stderr


@pytest.mark.parametrize("status", [0, 3])
def test_lines_and_end(tmp_path: Path, status: int) -> None:
    """The order arrives whole, lines come back, and the end says how and why."""
    lines, ended, stderr = run(tmp_path, str(status))
    assert (lines[0]["got"], ended, stderr.strip()) == ({"a": 1}, status, "said aloud")


def test_what_it_started_ends_with_it(tmp_path: Path) -> None:
    """A child that takes too long is killed, and its own child with it."""
    pids: list[int] = []
    (tmp_path / "ordered.py").write_text(PROGRAM)

    def take(line: bytes) -> None:
        message = json.loads(line)
        pids.append(message.get("grandchild") or message["pid"])

    async def story() -> None:
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path), *sys.path])}
        with pytest.raises(TimeoutError):
            await run_child(
                "ordered", ["hang"], b"{}", wall_s=8, on_line=take, folder=tmp_path, environment=environment
            )

    asyncio.run(story())
    assert len(pids) == 2
    for pid in pids:
        for _ in range(100):  # a killed process is there until somebody has seen to it
            if has_ended(pid):
                break
            pause_s(0.05)
        assert has_ended(pid)
