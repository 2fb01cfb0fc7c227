"""Requests that are answered later, by the client and by `appliance predict --no-wait`, over a real port."""

import json

import pytest

from appliance.client import Client
from appliance.demo.zoo import toys
from appliance.domain.errors import BadMedia, UnknownRequest
from appliance.domain.request import DeferredState
from appliance.wire.predict import PredictShape
from appliance.wire.requests import RequestShape
from tests.client.conftest import Port
from tests.e2e.polling import until


def request_end(client: Client, id: str) -> RequestShape:
    """The request once it is over."""
    until(lambda: client.request(id).state in (DeferredState.DONE, DeferredState.FAILED), "the end of the request")
    return client.request(id)


def test_client_fetches_deferred_answer_of_its_own_tenant_only(port: Port, digits: toys.Digits) -> None:
    """The deferred answer is what `predict` says; another tenant's client finds nothing."""
    picture = next(digits.evaluation.glob("*.png"))
    with port.client("device") as box, port.client("museum") as stranger:
        later = box.predict_later("digits", picture, variant="fp32", timeout_ms=60_000)
        assert later.state in (DeferredState.WAITING, DeferredState.RUNNING)
        with pytest.raises(UnknownRequest):
            stranger.request(later.id)
        over = request_end(box, later.id)
        assert over.state is DeferredState.DONE
        assert isinstance(over.result, PredictShape)
        assert over.result.task_fields["labels"] == box.predict("digits", picture).task_fields["labels"]
        assert over.problem is None
        with pytest.raises(BadMedia):
            box.predict_later("digits", b"")


def test_requests_command_shows_deferred_answer_or_problem(port: Port, digits: toys.Digits) -> None:
    """`predict --no-wait` shows the id and what to type next; `requests show` shows the answer, or fails with the
    sentence of the problem.
    """
    picture = str(next(digits.evaluation.glob("*.png")))
    asked = port.run("device", "predict", "digits", picture, "--no-wait")
    id, *_ = asked.split()
    assert f"appliance requests show {id}" in asked
    with port.client("device") as box:
        request_end(box, id)
        broken = box.predict_later("digits", b"no picture").id
        request_end(box, broken)
    assert "— variant fp32" in port.run("device", "requests", "show", id)
    told = json.loads(port.run("device", "requests", "show", id, "--json"))
    assert (told["id"], told["state"], told["result"]["variant"]) == (id, "done", "fp32")
    assert isinstance(port.invoke("device", "requests", "show", broken).exception, BadMedia)
    told = json.loads(port.invoke("device", "requests", "show", broken, "--json").stdout)
    assert told["problem"]["type"] == "/problems/bad-media"
    later = json.loads(port.run("device", "predict", "digits", picture, "--no-wait", "--json"))
    assert set(later) == {"id", "state"}
