"""A real box with models, and a real Chromium in front of it.

The browser is the system's. Tests skip themselves, and say why, where there is none, or where the pages were not built.
"""

import io
import json
import shutil
import zipfile
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

from appliance.api.pages import FOLDER
from appliance.demo.zoo import toys
from appliance.wire.access import KeyOrder
from tests.api.sounds import tones
from tests.e2e.server import Server, running_server

ROOT = Path(__file__).parents[2]
BROWSERS = ("chromium", "chromium-browser", "google-chrome", "chrome")
SHOTS = ROOT / "build" / "pages"
"""Where pictures of the pages are kept for people to look at."""
WIDTHS = {"wide": (1280, "light"), "phone": (360, "dark")}
MODEL = "digits"
HOSTILE = "<img src=x onerror=\"document.title='taken'\">"
"""A label, which is text whatever it looks like."""
TURNED = "\u202eyek nimda"
"""A label with a character that turns what stands after it round."""


@dataclass
class Seen:
    """What a tab did that no page of the box does."""

    errors: list[str] = field(default_factory=list)
    hosts: list[str] = field(default_factory=list)


@dataclass
class Box:
    """A furnished box."""

    server: Server
    digits: toys.Digits
    tenant_key: str
    """Of `harbour`."""

    @property
    def picture(self) -> Path:
        """One of a numeral."""
        return min(self.digits.model.parent.rglob("*.png"))


@pytest.fixture(scope="module")
def box(tmp_path_factory: pytest.TempPathFactory, digits: toys.Digits, processes: None, ports: None) -> Iterator[Box]:
    """Two tenants; the first has a model, and somebody has asked it."""
    if not (FOLDER / "index.html.br").exists():
        pytest.skip("the pages are not built: scripts/web-ui")
    with running_server(tmp_path_factory.mktemp("box") / "state") as server:
        with server.client() as admin:
            admin.create_tenant("harbour")
            key = admin.create_key("harbour", KeyOrder()).key
            metadata = json.loads(digits.metadata.read_text()) | {"precisions": []}
            job = admin.upload_model(digits.model, MODEL, "image-classification", metadata=metadata)
            for _ in admin.follow_job(job.id):
                pass
            made = Box(server, digits, key)
            for _ in range(5):
                admin.predict(MODEL, made.picture)
        yield made


@pytest.fixture(scope="module")
def chromium(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """The browser, with a camera that is made up, and a microphone that hears a tone every second. Its driver runs an
    event loop in this thread, which no test of another file may find.
    """
    from playwright import sync_api

    path = next(filter(None, map(shutil.which, BROWSERS)), None)
    if path is None:
        pytest.skip(f"no browser on this machine: none of {', '.join(BROWSERS)}")
    with sync_api.sync_playwright() as driver:
        arguments = ["--no-sandbox", "--use-fake-device-for-media-stream", "--use-fake-ui-for-media-stream"]
        heard = tones(tmp_path_factory.mktemp("microphone") / "heard.wav", rate=48_000, seconds=4)
        arguments.append(f"--use-file-for-fake-audio-capture={heard}")
        browser = driver.chromium.launch(executable_path=path, args=arguments)
        yield browser
        browser.close()


Tab = Callable[..., AbstractContextManager[Any]]


@pytest.fixture
def tab(chromium: Any, box: Box) -> Tab:
    """Opens a tab of a browser of its own, signed in with a key; what it did is judged when it closes."""

    @contextmanager
    def opened(
        path: str = "/", *, key: str | None = "admin", shape: str = "wide", zone: str | None = None
    ) -> Iterator[Any]:
        width, theme = WIDTHS[shape]
        size = {"width": width, "height": 800}
        context = chromium.new_context(
            viewport=size,
            color_scheme=theme,
            timezone_id=zone,
            permissions=["camera", "microphone"],
            device_scale_factor=2 if shape == "phone" else 1,
        )
        page = context.new_page()
        page.set_default_timeout(120_000)
        seen = Seen()
        page.on("pageerror", lambda error: seen.errors.append(str(error)))
        page.on("console", lambda said: _note(seen, said.type, said.text))
        page.on("request", lambda asked: _look(seen, asked.url, box.server.url))
        try:
            page.goto(box.server.url + path)
            if key is not None:
                sign_in(page, box.server.admin_key if key == "admin" else key)
            yield page
        finally:
            context.close()
        assert seen == Seen()

    return opened


def sign_in(page: Any, key: str) -> None:
    page.get_by_label("Key", exact=True).fill(key)
    page.get_by_role("button", name="Sign in").click()
    page.locator("header.side").wait_for()


def archive(digits: toys.Digits, target: Path, *, padding_bytes: int = 0) -> Path:
    """The model with its samples in one file; `padding_bytes` make it as large as real ones are."""
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w") as packed:
        for path in sorted(digits.model.parent.rglob("*")):
            name = str(path.relative_to(digits.model.parent))
            if path.is_file():
                packed.write(path, "model.onnx" if path == digits.model else name)
        if padding_bytes:
            packed.writestr("notes.txt", bytes(padding_bytes))
    target.write_bytes(content.getvalue())
    return target


def always_there(path: Path, *, centre: tuple[int, int], size: tuple[int, int]) -> Path:
    """A detector of 64 × 64 pictures that sees one object of its only class, whatever is on them."""
    image = helper.make_tensor_value_info("image", TensorProto.FLOAT, [1, 3, 64, 64])
    answer = helper.make_tensor_value_info("rows", TensorProto.FLOAT, [1, 5, 8])
    rows = np.zeros((1, 5, 8), np.float32)
    rows[0, :, 0] = (*centre, *size, 0.9)
    constants = {"rows_0": rows, "zero": np.zeros(1, np.float32)}
    nodes = [
        helper.make_node("ReduceMean", ["image"], ["mean"], name="mean", keepdims=0),
        helper.make_node("Mul", ["mean", "zero"], ["nothing"], name="nothing"),
        helper.make_node("Add", ["rows_0", "nothing"], ["rows"], name="rows"),
    ]
    initializers = [numpy_helper.from_array(value, name) for name, value in constants.items()]
    graph = helper.make_graph(nodes, "there", [image], [answer], initializers)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=10)
    path.write_bytes(model.SerializeToString())
    return path


def _note(seen: Seen, kind: str, text: str) -> None:
    """Answers that are no success, and lines that break, are what some stories are about."""
    if kind == "error" and not text.startswith("Failed to load resource"):
        seen.errors.append(text)


def _look(seen: Seen, url: str, own: str) -> None:
    if not url.startswith((own, "blob:")):
        seen.hosts.append(url)
