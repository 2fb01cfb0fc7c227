"""A probe: a tiny network runs on a kind of processor, in a child process, with the very sessions of serving.

That a library lists a device says little: it may compute elsewhere in silence, or end the process. The child half is
this module run as a program: one JSON order on standard input, one JSON answer on standard output.
"""

import json
import os
import sys
import tempfile
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np

import appliance
from appliance.child import die_with_parent, executed, run_child
from appliance.domain.errors import LoadFailed, RunFailed
from appliance.domain.hardware import PreparedForm, ProcessorDescription
from appliance.runtime.processors.cpu.threads import pin
from appliance.runtime.processors.sessions import InferenceSessions, sessions_of

WALL_S = 120.0
"""Many times what it takes; a device may have to wake first."""
_NICE = 10
NETWORK = (
    b'\x08\n:P\n\x11\n\x01x\n\x01x\x12\x01y\x1a\x01a"\x03Add\x12\x01gZ\x1b\n\x01x\x12\x16\n\x14\x08\x01\x12\x10\n'
    b"\x02\x08\x01\n\x02\x08\x01\n\x02\x08\x02\n\x02\x08\x02b\x1b\n\x01y\x12\x16\n\x14\x08\x01\x12\x10\n\x02\x08\x01\n"
    b"\x02\x08\x01\n\x02\x08\x02\n\x02\x08\x02B\x04\n\x00\x10\x11"
)
"""y = x + x of a picture of four floats, as an ONNX file: IR version 10, opset 17."""


@dataclass(frozen=True, slots=True)
class ChildProbe:
    """The service's half."""

    scratch: Path
    """Where its child has a folder."""
    wall_s: float = WALL_S

    async def __call__(self, processor: ProcessorDescription) -> str:
        """Empty when the network ran there, else why not."""
        lines: list[bytes] = []
        with tempfile.TemporaryDirectory(dir=self.scratch, prefix="probe-") as folder:
            order = {
                "kind": processor.kind,
                "workers": processor.workers,
                "threads": processor.threads_per_run,
                "cores": processor.cores,
                "folder": folder,
            }
            try:
                ended = await run_child(
                    partial(executed, "appliance.runtime.processors.probe", environment=_environment()),
                    json.dumps(order).encode(),
                    wall_s=self.wall_s,
                    on_line=lines.append,
                )
            except TimeoutError:
                return f"its probe took longer than {self.wall_s:g} s"
        if ended.status != 0:
            told = ended.stderr.strip().splitlines()[-1:] or [f"exit status {ended.status}"]
            return f"its probe ended: {told[0][:300]}"
        return str(json.loads(lines[-1])["reason"])


def _environment() -> dict[str, str]:
    """The service's, for drivers are found by it, with this very package first."""
    return {**os.environ, "PYTHONPATH": str(Path(appliance.__file__).resolve().parents[1])}


def check(sessions: InferenceSessions, folder: Path) -> str:
    """Prepare the network and run it once, as builds are; empty when it computed what it should where it should, else
    what went wrong.
    """
    path, target = folder / "probe.onnx", folder / "prepared"
    path.write_bytes(NETWORK)
    target.mkdir()
    x = np.arange(4, dtype=np.float32).reshape(1, 1, 2, 2)
    try:
        name = sessions.prepare(path, target)
        form = PreparedForm("probe", str(target / name if name else path), len(NETWORK), optimised=bool(name))
        loaded = sessions.load(form)
        y = sessions.run(loaded, {"x": x}, None)["y"]
    except (LoadFailed, RunFailed) as error:
        return error.reason
    device = sessions.fell_back_to(loaded)
    if device:
        return f"it fell back to {device}"
    found, expected = np.ravel(y), np.ravel(x + x)
    is_right = np.shape(y) == x.shape and np.allclose(found, expected)
    return "" if is_right else f"it computed {found.tolist()} in place of {expected.tolist()}"


def main() -> None:
    """One order in, one answer out."""
    order = json.loads(sys.stdin.read())
    die_with_parent()
    os.nice(_NICE)
    try:
        pin(order["cores"])
        reason = check(sessions_of(order["kind"], order["workers"], order["threads"]), Path(order["folder"]))
    except Exception as error:  # a library that is not there, or has no driver
        reason = f"{type(error).__name__}: {error}"[:500]
    print(json.dumps({"reason": reason}), flush=True)
    os._exit(0)  # what drivers do at the end of a process is no part of the probe


if __name__ == "__main__":
    main()
