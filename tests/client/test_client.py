"""The client against a real box on a real port."""

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import httpx
import pytest

from appliance.client import Client, UnexpectedAnswer
from appliance.client import client as client_module
from appliance.demo.zoo import toys
from appliance.domain.access import Role
from appliance.domain.catalogue import TaskKind
from appliance.domain.errors import (
    AlreadyExists,
    Forbidden,
    MissingKey,
    OffsetMismatch,
    UnknownModel,
    UnknownTenant,
    UnknownVariant,
    WrongKey,
)
from appliance.domain.states import JobState
from appliance.wire.access import KeyOrder, QuotaShape
from appliance.wire.catalogue import ApplicationChange, ApplicationOrder
from tests.client.conftest import Port
from tests.client.lines import BreakingLine


def fp32_only(digits: toys.Digits) -> dict[str, object]:
    metadata: dict[str, object] = json.loads(digits.metadata.read_text()) | {"precisions": []}
    return metadata


def test_client_uploads_calls_and_deletes_a_model(port: Port, digits: toys.Digits) -> None:
    """With progress, typed shapes and the fields of the task."""
    sent: list[tuple[int, int]] = []
    with port.client("museum") as box:
        job = box.upload_model(
            digits.model,
            "mine",
            TaskKind.IMAGE_CLASSIFICATION,
            metadata=fp32_only(digits),
            on_progress=lambda *at: sent.append(at),
        )
        states = list(box.follow_job(job.id))
        assert states[-1].state is JobState.DONE
        assert next(one.id for one in box.jobs()) == job.id
        assert [model.name for model in box.models()] == ["adding", "mine"]
        assert [variant.name for variant in box.variants("mine")] == ["fp32"]
        assert box.model("mine").task.kind is TaskKind.IMAGE_CLASSIFICATION
        truth = json.loads((digits.evaluation / "truth.json").read_text())["samples"][0]
        answer = box.predict("mine", digits.evaluation / truth["file"])
        assert answer.task_fields["labels"][0]["label"] == str(truth["label"])
        assert (answer.model, answer.variant) == ("mine", "fp32")
        assert answer.timings_ms.total > 0
        assert sent == [(digits.model.stat().st_size,) * 2]
        box.delete_model("mine")
        with pytest.raises(UnknownModel):
            box.model("mine")


def test_client_uploads_large_file_in_pieces_with_progress(
    port: Port, digits: toys.Digits, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Above the limit of the form."""
    monkeypatch.setattr(client_module, "FORM_BYTES_MAX", 1000)
    sent: list[tuple[int, int]] = []
    metadata, size = fp32_only(digits), digits.model.stat().st_size
    with port.client("museum") as box:
        job = box.upload_model(
            digits.model, "pieces", "image-classification", metadata=metadata, on_progress=lambda *at: sent.append(at)
        )
        assert list(box.follow_job(job.id))[-1].state is JobState.DONE
        assert sent[-1] == (size, size)
        box.delete_model("pieces")


def test_upload_resumes_after_broken_connections(port: Port, tmp_path: Path) -> None:
    """Two breaks within one upload: the client goes on where the box stopped and every byte is right."""
    content = bytes(range(256)) * 4096
    (tmp_path / "large").write_bytes(content)
    with Client(port.url, port.keys["museum"], transport=BreakingLine(300_000, 600_000)) as box:
        done = box.upload(tmp_path / "large")
        assert (done.complete, done.offset) == (True, len(content))
        assert (port.state_dir / "uploads" / done.id).read_bytes() == content
        box.delete_upload(done.id)


def test_upload_over_a_connection_that_stays_broken_raises(port: Port, tmp_path: Path) -> None:
    """After some tries without a byte gained."""
    (tmp_path / "f").write_bytes(b"0123")
    dead = BreakingLine(0, for_good=True)
    with Client(port.url, port.keys["museum"], transport=dead) as box, pytest.raises(httpx.WriteError):
        box.upload(tmp_path / "f")


def test_client_creates_changes_lists_and_deletes_an_application(port: Port) -> None:
    """An explicit null takes the promise away."""
    with port.client("museum") as box:
        made = box.create_application(ApplicationOrder(name="sums", model="adding", latency_slo_ms=500))
        assert made.latency_slo_ms == 500
        assert box.change_application("sums", ApplicationChange(weight=3)).latency_slo_ms == 500
        assert box.change_application("sums", ApplicationChange(latency_slo_ms=None)).latency_slo_ms is None
        assert [one.name for one in box.applications()] == ["adding", "sums"]
        answer = box.predict(
            "sums", {"inputs": {"A": [[1, 2, 3, 4]], "B": [[1, 1, 1, 1]]}}, priority=1, timeout_ms=5000
        )
        assert "SUM" in answer.task_fields["outputs"]
        box.delete_application("sums")


def test_client_lists_resources_of_every_tenant_for_an_admin_only(port: Port) -> None:
    """Whole and in short, or of one that it names with every call; a tenant's key is refused."""
    with port.client("admin") as box:
        assert {"harbour", "default"} <= {one.tenant for one in box.models(every_tenant=True)}
        assert all(one.variants == [] and one.variants_count for one in box.models(every_tenant=True, summary=True))
        assert "harbour" in {one.tenant for one in box.applications(every_tenant=True, summary=True)}
        assert "harbour" in {one.tenant for one in box.jobs(every_tenant=True)}
        assert list(box.pipelines(every_tenant=True, summary=True)) == []
        assert {"harbour", "museum", "default"} <= {one.tenant for one in box.keys("*")}
    with port.client("admin", tenant="harbour") as box:
        assert "digits" in [model.name for model in box.models()]
    with port.client("museum") as box, pytest.raises(Forbidden):
        list(box.models(every_tenant=True))


def test_client_manages_tenants_and_revoked_key_is_refused(port: Port) -> None:
    """An admin makes a tenant and its key; the key opens, and once revoked it does not."""
    with port.client("admin") as box:
        assert box.create_tenant("airport", QuotaShape(requests_per_s=5)).quota.requests_per_s == 5
        assert "airport" in [tenant.name for tenant in box.tenants()]
        key = box.create_key("airport", KeyOrder(role=Role.TENANT, label="for a test"))
        assert [one.label for one in box.keys("airport")] == ["for a test"]
        with Client(port.url, key.key) as airport:
            assert airport.tenant("airport").name == "airport"
            box.revoke_key("airport", key.id)
            with pytest.raises(WrongKey):
                list(airport.models())
        box.change_tenant("airport", QuotaShape())
        box.delete_tenant("airport")
        with pytest.raises(UnknownTenant):
            box.tenant("airport")


def test_client_reads_system_memory_history_processors_and_metrics(port: Port) -> None:
    with port.client("admin") as box:
        assert box.is_ready()
        assert box.system().ready
        assert box.memory().budget_bytes > 0
        assert box.memory_history().is_whole
        assert box.history(["up", "requests"], points=60).series[1].unit == "1/s"
        assert isinstance(box.history().known, list)
        assert box.processors()[0].kind == "cpu"
        assert "appliance_ready 1.0" in box.metrics()


def test_client_streams_past_events_and_chosen_kinds(port: Port) -> None:
    """What happened since an id, then what happens."""
    with port.client("admin") as box:
        box.create_tenant("shortlived")
        stream = box.events(after=0)
        assert next(stream).id >= 1
        stream.close()  # type: ignore[attr-defined]
        chosen = box.events(after=0, kinds=["variant"])
        assert next(chosen).event.startswith("variant ")
        chosen.close()  # type: ignore[attr-defined]
        box.delete_tenant("shortlived")


CALLS: list[tuple[str | None, Callable[[Client], object], type[Exception]]] = [
    (None, lambda box: list(box.models()), MissingKey),
    ("museum", lambda box: box.model("nothing"), UnknownModel),
    ("museum", lambda box: box.create_tenant("x"), Forbidden),
    ("admin", lambda box: box.create_tenant("museum"), AlreadyExists),
    ("device", lambda box: box.predict("digits", b"x", variant="int9"), UnknownVariant),
]


@pytest.mark.parametrize(("who", "call", "error"), CALLS)
def test_client_raises_the_error_class_of_the_problem(
    port: Port, who: str | None, call: Callable[[Client], object], error: type[Exception]
) -> None:
    """With their facts and their sentence."""
    with Client(port.url, None if who is None else port.keys[who]) as box, pytest.raises(error) as raised:
        call(box)
    assert str(raised.value)


def test_client_error_carries_the_facts_of_the_problem(port: Port) -> None:
    """An offset mismatch tells where to go on."""
    with port.client("museum") as box:
        upload = box.begin_upload(Path(__file__))
        with pytest.raises(OffsetMismatch) as raised:
            box.append(upload.id, 5, iter([b"x"]))
        assert raised.value.expected_offset == 0
        box.delete_upload(upload.id)


def test_answer_of_another_program_raises_unexpected_answer() -> None:
    """A body that is no problem document of the box is told as it is, also JSON that is no object."""
    for content in (
        b"<html>gateway</html>",
        b"[1]",
        b'{"type": "about:blank", "detail": "no"}',
        b'{"type": "/problems/queue-full"}',
    ):
        transport = httpx.MockTransport(lambda request, content=content: httpx.Response(502, content=content))
        with Client("http://box", transport=transport) as box, pytest.raises(UnexpectedAnswer) as raised:
            box.system()
        assert raised.value.status == 502


@pytest.mark.usefixtures("ports")
def test_client_of_an_absent_box_is_not_ready_and_raises(tmp_path: Path) -> None:
    """A call raises a transport error."""
    with Client("http://127.0.0.1:9") as box:
        assert not box.is_ready()
        with pytest.raises(httpx.TransportError):
            box.system()


@pytest.mark.usefixtures("processes")
def test_client_import_loads_no_server_dependencies() -> None:
    """No web framework, no database, no ONNX Runtime, no pictures."""
    code = "import sys, appliance.client; print(*sys.modules)"
    modules = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert not {"fastapi", "starlette", "sqlmodel", "sqlalchemy", "onnxruntime", "cv2", "onnx"} & set(modules)
