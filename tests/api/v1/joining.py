"""Sessions that join over HTTP."""

from typing import Any

from appliance.runtime.sessions.live import LiveSession
from tests.api.stand import Stand

SLO_MS = 60_000
"""However busy the machine is, an answer is in time."""
LATENCY = {"kind": "latency", "slo_ms": SLO_MS, "rate_rps": 10}


def order(promise: dict[str, Any], **fields: Any) -> dict[str, Any]:
    """What a device posts."""
    return {"application": "digits", "name": "cam", "fps": 30, "promise": promise} | fields


async def joined(stand: Stand, promise: dict[str, Any], who: str = "device", **fields: Any) -> LiveSession:
    """A session that was let in."""
    answer = await stand.client(who).post("/v1/sessions", json=order(promise, **fields))
    assert answer.status_code == 201, answer.text
    return stand.appliance.running().sessions.live[answer.json()["id"]]
