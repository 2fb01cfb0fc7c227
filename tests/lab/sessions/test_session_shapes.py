"""What is written wrong of devices is refused by its key."""

from typing import Any

import pytest

from appliance.lab.problems.base import Malformed
from tests.lab.sessions.device_scenarios import CAMERA, FAST, GLASSES, scenario

WRONG: list[tuple[dict[str, Any], str]] = [
    ({"sessions": [{**CAMERA, "application": "nobody"}]}, "sessions[0].application"),
    ({"sessions": [CAMERA, CAMERA]}, "sessions"),
    ({"sessions": [{**CAMERA, "name": "a", "count": 2}, {**CAMERA, "name": "a-1", "count": 1}]}, "sessions"),
    ({"sessions": [{**CAMERA, "rate_rps": None}]}, "sessions[0].fps"),
    ({"sessions": [{**GLASSES, "rate_rps": 5}]}, "sessions[0].rate_rps"),
    ({"sessions": [{**GLASSES, "accuracy_slo": None}]}, "sessions[0].latency_slo_ms"),
    ({"sessions": [{**GLASSES, "accuracy_slo": -0.1}]}, "sessions[0].accuracy_slo"),
    ({"sessions": [{**CAMERA, "network": {"rtt_ms": 5}}]}, "sessions[0].network"),
    ({"sessions": [{**CAMERA, "network": {**FAST, "csv": "a.csv"}}]}, "sessions[0].network"),
    ({"sessions": [{**CAMERA, "network": {"csv": "nowhere.csv"}}]}, "sessions[0].network.csv"),
    ({"sessions": [{**GLASSES, "drop_rate": "nowhere.csv"}]}, "sessions[0].drop_rate"),
    ({"sessions": [{**CAMERA, "count": 0}]}, "sessions[0].count"),
    ({"duration_s": None}, "duration_s"),
    ({"duration_s": 1e8}, "duration_s"),
    ({"faults": [{"kind": "link-down", "at_s": 1}]}, "faults[0].session"),
    ({"faults": [{"kind": "link-down", "at_s": 1, "session": "camera-9"}]}, "faults[0].session"),
    ({"policies": {"offload": "magic"}}, "policies.offload"),
    ({"policies": {"adaptation": "magic"}}, "policies.adaptation"),
]


@pytest.mark.parametrize(("changes", "key"), WRONG)
def test_malformed_session_is_refused_by_its_key(changes: dict[str, Any], key: str) -> None:
    with pytest.raises(Malformed) as refused:
        scenario(**changes)
    assert str(refused.value).startswith(key)


def test_sessions_on_several_processors_are_read() -> None:
    box = {"memory_mb": 2000, "processors": [{"name": "gpu"}, {"name": "npu"}]}
    assert scenario(box=box).sessions
