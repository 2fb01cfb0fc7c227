"""Requests that are answered later, on a running box and over its end."""

import json
from pathlib import Path

import pytest

from appliance.domain.errors import UnknownRequest
from appliance.domain.request import DeferredState
from appliance.wire.predict import PredictShape
from tests.e2e.polling import until
from tests.e2e.server import brought, running_server
from tests.toys import tiny_add

pytestmark = [pytest.mark.usefixtures("processes", "ports"), pytest.mark.timeout(240)]

ROWS = 200_000


@pytest.mark.nightly("a server of its own, started twice")
def test_deferred_requests_finish_before_a_stop_and_are_unknown_after(tmp_path: Path) -> None:
    """An answer is fetched over the box's own protocol; SIGTERM amid a large request ends the box cleanly, and after
    the next start both ids are unknown.
    """
    with running_server(tmp_path / "state", APPLIANCE_HTTP__DRAIN_S="120") as server:
        with server.client() as box:
            brought(box, tiny_add(tmp_path / "add.onnx"), "add", metadata={"precisions": []})
            small = box.predict_later("add", {"inputs": {"A": [[1, 2, 3, 4]], "B": [[10, 20, 30, 40]]}}).id
            until(lambda: box.request(small).state is DeferredState.DONE, "the answer")
            result = box.request(small).result
            assert isinstance(result, PredictShape)
            assert result.task_fields["outputs"]["SUM"]["data"] == [11, 22, 33, 44]
            table = [[1, 2, 3, 4]] * ROWS
            large = box.predict_later("add", json.dumps({"inputs": {"A": table, "B": table}}).encode()).id
        assert server.stop() == 0
        assert "request failed" not in server.log()
        server.start_again()
        with server.client() as box:
            for id in (small, large):
                with pytest.raises(UnknownRequest):
                    box.request(id)
