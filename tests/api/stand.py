"""A whole box in this process, as the composition root makes it, with two tenants, a trained model and keys; and
ways to call it.
"""

import asyncio
import json
import shutil
import sqlite3
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager, closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import uvicorn

from appliance.app import Appliance
from appliance.demo.zoo.toys import Digits
from appliance.domain.request import DeferredState
from appliance.domain.states import JobState
from appliance.settings import Settings
from tests.toys import tiny_add

WAIT_S = 120.0
ANSWER_S = 120.0


@dataclass(frozen=True)
class Stand:
    """A running box."""

    appliance: Appliance
    state_dir: Path
    keys: Mapping[str, str]
    """admin, harbour and museum (tenants), device (of harbour, for `digits` only), probe (device of harbour, for
    all).
    """
    open_clients: list[httpx.AsyncClient] = field(default_factory=list)

    def client(self, who: str | None = "admin", *, key: str = "", **headers: str) -> httpx.AsyncClient:
        """A client with the key of this name, or with this `key`; None = without."""
        if key or who is not None:
            headers["Authorization"] = f"Bearer {key or self.keys[str(who)]}"
        transport = httpx.ASGITransport(self.appliance.asgi)
        made = httpx.AsyncClient(transport=transport, base_url="http://box", headers=headers, timeout=60)
        self.open_clients.append(made)
        return made

    async def close(self) -> None:
        for one in self.open_clients:
            await one.aclose()


@asynccontextmanager
async def running(state_dir: Path, **settings: Any) -> AsyncIterator[Appliance]:
    """A box over a state folder, from start to stop.

    It brings nothing by itself unless told to, so that a test sees its own loads only; and it starts no guards unless
    told to: what is tested here is the same with and without.
    """
    settings.setdefault("policies", {"eviction": "lru"})
    settings.setdefault("guard", {"isolation": "none"})
    appliance = Appliance(Settings(state_dir=state_dir, **settings))
    async with appliance.started():
        yield appliance


@asynccontextmanager
async def stand_on(state_dir: Path, keys: Mapping[str, str] | None = None, **settings: Any) -> AsyncIterator[Stand]:
    """A running box over a state folder, with clients. Without `keys`: that of its admin."""
    async with running(state_dir, **settings) as appliance:
        stand = Stand(appliance, state_dir, keys or {"admin": (state_dir / "admin.key").read_text().strip()})
        yield stand
        await stand.close()


StandWith = Callable[..., AbstractAsyncContextManager[Stand]]
"""Begins a box with these settings over the test's own copy of the furnished state, each time over the same one."""
FurnishedWith = Callable[[Callable[[Stand], Awaitable[None]]], Path]
"""The furnished state folder with what is done over a running box, made once a module; to be copied, not to be used."""


def refusal(answer: httpx.Response) -> tuple[int, str]:
    """Return status and type of a problem, as 404 and `unknown-model`."""
    return answer.status_code, answer.json()["type"].removeprefix("/problems/")


async def good(asking: Awaitable[httpx.Response]) -> Any:
    """Return the answer of a call that goes well."""
    answer = await asking
    assert answer.is_success, answer.text
    return answer.json()


@contextmanager
def serving(appliance: Appliance) -> Iterator[str]:
    """The box on a port, in a thread of its own, with the server that the program uses; its address."""
    server = uvicorn.Server(uvicorn.Config(appliance.asgi, port=0, http="httptools", lifespan="on", log_config=None))
    thread = threading.Thread(target=server.run)
    thread.start()
    listening = threading.Event()
    while not server.started:
        assert thread.is_alive(), "the server did not start"
        listening.wait(0.01)
    address, number = server.servers[0].sockets[0].getsockname()[:2]
    yield f"http://{address}:{number}"
    appliance.begin_drain()
    server.should_exit = True
    thread.join(2 * WAIT_S)
    assert not thread.is_alive()


async def shown_when(
    client: httpx.AsyncClient, path: str, is_so: Callable[[Any], object], *, every_s: float = 0.02
) -> Any:
    """Return what a path shows, once the condition holds."""
    async with asyncio.timeout(WAIT_S):
        while not is_so(shown := await good(client.get(path))):  # noqa: ASYNC110 - the box tells nobody
            await asyncio.sleep(every_s)  # noqa: TID251 - a child process or a thread works, in real time
    return shown


async def job_end(client: httpx.AsyncClient, job: str) -> dict[str, Any]:
    """Return the job once it has ended."""
    ends = (JobState.DONE, JobState.FAILED, JobState.CANCELLED)
    ended: dict[str, Any] = await shown_when(client, f"/v1/jobs/{job}", lambda shown: shown["state"] in ends)
    return ended


async def request_end(client: httpx.AsyncClient, location: str) -> dict[str, Any]:
    """What is told of a request that is answered later, once it is over."""
    ends = (DeferredState.DONE, DeferredState.FAILED)
    told: dict[str, Any] = await shown_when(client, location, lambda shown: shown["state"] in ends, every_s=0.005)
    return told


async def imported(client: httpx.AsyncClient, name: str, model: bytes, task: str = "tensor", **more: Any) -> Any:
    """The ended job of a model's import. `more`: files (bytes), and other fields of the form; dicts go as JSON."""
    files = {"file": model} | {key: value for key, value in more.items() if isinstance(value, bytes)}
    fields = {key: json.dumps(value) if isinstance(value, dict) else value for key, value in more.items()}
    form = {"name": name, "task": task} | {key: value for key, value in fields.items() if key not in files}
    return await job_end(client, (await good(client.post("/v1/models", data=form, files=files)))["id"])


IMAGE = {"inputs": [{"name": "image", "shape": [1, 1, 8, 8], "datatype": "FP32", "data": [0.0] * 64}]}
"""What `digits` takes over `/v2`."""
ROWS = {"inputs": {"A": [[1, 2, 3, 4]], "B": [[10, 20, 30, 40]]}}
"""What `adding` takes, whose answer is 11, 22, 33, 44."""


async def made_key(client: httpx.AsyncClient, tenant: str, **order: Any) -> str:
    """Return a new key of a tenant."""
    return str((await good(client.post(f"/v1/tenants/{tenant}/keys", json=order)))["key"])


def model_form(digits: Digits, name: str, **fields: str) -> dict[str, Any]:
    """Arguments of a POST that uploads the trained model; only fp32 is made, which is quick."""
    metadata = json.loads(digits.metadata.read_text()) | {"precisions": []}
    data = {"name": name, "task": "image-classification", "metadata": json.dumps(metadata)} | fields
    return {"data": data, "files": {"file": (digits.model.name, digits.model.read_bytes())}}


async def furnish(state_dir: Path, digits: Digits) -> dict[str, str]:
    """Make the tenants, keys and models of a stand in an empty state folder; returns the keys."""
    async with stand_on(state_dir) as stand:
        admin = stand.client()
        keys = dict(stand.keys)
        for tenant in ("harbour", "museum"):
            await good(admin.post("/v1/tenants", json={"name": tenant}))
            keys[tenant] = await made_key(admin, tenant)
        harbour = stand.client(key=keys["harbour"])
        job = (await harbour.post("/v1/models", **model_form(digits, "digits"))).json()["id"]
        assert (await job_end(harbour, job))["state"] == JobState.DONE
        for who, names in (("device", ["digits"]), ("probe", [])):
            keys[who] = await made_key(harbour, "harbour", role="device", applications=names)
        adding = tiny_add(state_dir / "adding.onnx").read_bytes()
        job = await imported(admin, "adding", adding, shared="true", metadata={"precisions": []})
        assert job["state"] == JobState.DONE
    return keys


def copied(source: Path, target: Path) -> Path:
    """Return a state folder of the test's own."""
    shutil.copytree(source, target)
    return target


@contextmanager
def refusing(stand: Stand, table: str) -> Iterator[None]:
    """Let the database refuse new rows of a table meanwhile."""
    with closing(sqlite3.connect(stand.state_dir / "appliance.db")) as connection:
        connection.execute(f"CREATE TRIGGER refuse BEFORE INSERT ON {table} BEGIN SELECT RAISE(ABORT, 'no'); END")
        connection.commit()
        try:
            yield
        finally:
            connection.execute("DROP TRIGGER refuse")
            connection.commit()


@dataclass
class Asking:
    """One request driven by hand over ASGI, for answers that do not end and bodies that come in odd ways."""

    app: Any
    method: str
    path: str
    headers: Mapping[str, str] = field(default_factory=dict)
    body: Iterator[bytes] = field(default_factory=lambda: iter([b""]))
    query: str = ""
    client: tuple[str, int] = ("10.0.0.7", 4711)
    started: asyncio.Future[dict[str, Any]] | None = None
    pieces: "asyncio.Queue[bytes]" = field(default_factory=asyncio.Queue)

    async def __aenter__(self) -> "Asking":
        self.started = asyncio.get_running_loop().create_future()
        self._gone = asyncio.Event()
        self.task = asyncio.create_task(self.app(self.scope(), self._receive, self._send))
        return self

    async def __aexit__(self, *_: object) -> None:
        self._gone.set()
        await asyncio.wait([self.task], timeout=ANSWER_S)
        assert self.task.done(), "the answer did not end after the caller had gone"
        self.task.exception()

    async def status(self) -> int:
        """Return the status of the answer, once it begins."""
        assert self.started is not None
        async with asyncio.timeout(ANSWER_S):
            return int((await self.started)["status"])

    async def piece(self) -> bytes:
        """Return the next piece of the answer."""
        async with asyncio.timeout(ANSWER_S):
            return await self.pieces.get()

    async def ended(self) -> None:
        """Wait for the end of the answer."""
        async with asyncio.timeout(ANSWER_S):
            await asyncio.shield(self.task)

    def scope(self) -> dict[str, Any]:
        raw = [(name.lower().encode(), value.encode()) for name, value in self.headers.items()]
        return {
            "type": "http",
            "asgi": {"version": "3.0", "spec_version": "2.3"},
            "http_version": "1.1",
            "method": self.method,
            "scheme": "http",
            "path": self.path,
            "raw_path": self.path.encode(),
            "query_string": self.query.encode(),
            "root_path": "",
            "headers": raw,
            "client": self.client,
            "server": ("box", 80),
        }

    async def _receive(self) -> dict[str, Any]:
        try:
            for block in self.body:
                return {"type": "http.request", "body": block, "more_body": True}
        except ConnectionResetError:  # what a server makes of a line that breaks
            return {"type": "http.disconnect"}
        if not hasattr(self, "_ended"):
            self._ended = True
            return {"type": "http.request", "body": b"", "more_body": False}
        await self._gone.wait()
        return {"type": "http.disconnect"}

    async def _send(self, message: Any) -> None:
        assert self.started is not None
        if message["type"] == "http.response.start":
            self.started.set_result(message)
        elif message["type"] == "http.response.body" and message.get("body"):
            await self.pieces.put(message["body"])
