"""A box whose models run in guards, killed at random instants: it, or one of its guards."""

import os
import random
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx

from appliance.clock import pause_s
from tests import toys
from tests.attacks.killer_box import HONEST, client_of, new_key
from tests.e2e.server import Server, running_server

TENANTS = ("one", "two")
END_S = 120.0
_ASKERS = 3


@contextmanager
def guarded_box(folder: Path) -> Iterator[tuple[Server, dict[str, str]]]:
    """A box with a model of each of two tenants, and a key of each."""
    folder.mkdir(exist_ok=True)
    with running_server(folder / "state", APPLIANCE_GUARD__ISOLATION="process") as server:
        model = toys.tiny_add(folder / "add.onnx")
        keys = {}
        for tenant in TENANTS:
            with client_of(server, server.admin_key) as admin:
                admin.post("/v1/tenants", json={"name": tenant}).raise_for_status()
            keys[tenant] = new_key(server, tenant)
            with server.client(keys[tenant]) as client:
                job = client.upload_model(model, "add", "tensor", metadata={"precisions": []})
                assert list(client.follow_job(job.id))[-1].state == "done"
        yield server, keys


def killed(server: Server, keys: dict[str, str], chance: random.Random) -> None:
    """Kill the box, or one of its guards, while its tenants ask, load and unload.

    Raises: AssertionError unless all of it ends, nothing of it is left after the next start, and everybody is answered.
    """
    ended = threading.Event()
    threads = [threading.Thread(target=_ask, args=(server.url, keys[tenant], ended)) for tenant in TENANTS * _ASKERS]
    for thread in threads:
        thread.start()
    pause_s(chance.uniform(0.0, 1.0))
    children = processes_below(server.process.pid)
    if chance.random() < 0.5 and children:
        os.kill(chance.choice(children), signal.SIGKILL)
    else:
        server.kill()
        for _ in range(int(END_S / 0.05)):
            if not any(map(_lives, children)):
                break
            pause_s(0.05)
        assert not any(map(_lives, children)), "a guard outlived its box"
        folders = set((server.state_dir / "scratch").glob("guard-*"))
        server.start_again()
        assert not any(folder.exists() for folder in folders), "a folder of a guard that has gone"
    ended.set()
    for thread in threads:
        thread.join()
    for tenant in TENANTS:
        with client_of(server, keys[tenant]) as client:
            statuses = [client.post("/v2/models/add/infer", json=HONEST).status_code for _ in range(3)]
            assert statuses[-1] == 200, statuses


def processes_below(pid: int) -> list[int]:
    """All that it has started, and what those have."""
    parents = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                parents[int(entry.name)] = int((entry / "stat").read_text().rsplit(")", 1)[1].split()[1])
            except OSError:
                continue
    found = [child for child, parent in parents.items() if parent == pid]
    for child in found:  # grows while it is read
        found += [one for one, parent in parents.items() if parent == child]
    return found


def _lives(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] not in "ZX"
    except OSError:
        return False


def _ask(url: str, key: str, ended: threading.Event) -> None:
    with httpx.Client(base_url=url, headers={"Authorization": f"Bearer {key}"}, timeout=30) as client:
        for number in range(10**9):
            if ended.is_set():
                return
            try:
                client.post("/v2/models/add/infer", json=HONEST)
                if number % 50 == 49:
                    client.post("/v2/repository/models/add/unload")
            except httpx.TransportError:
                return
