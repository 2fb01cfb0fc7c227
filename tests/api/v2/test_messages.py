"""Errors in the protocol's shape: the status that its clients expect. And long lists."""

from typing import Any

import pytest

from appliance.api.http.limits import InFlight
from appliance.api.http.problems import status_of
from appliance.api.v2.messages import error_answer, whole_body
from appliance.domain.errors import ApplianceError, BadTensor, ModelUnavailable, RunCrashed, RunFailed, RunRefused

RUN = {"variant_id": "t/m:v", "reason": "no"}


@pytest.mark.parametrize(
    ("error", "v1", "v2"),
    [
        (BadTensor(reason="no"), 422, 400),
        (ModelUnavailable(name="m"), 409, 400),
        (RunRefused(**RUN), 422, 400),
        (RunFailed(**RUN), 500, 500),
        (RunCrashed(**RUN), 500, 500),
    ],
)
def test_error_that_the_client_can_mend_is_400_and_a_crash_is_500(error: ApplianceError, v1: int, v2: int) -> None:
    """Values that a network cannot compute are the caller's to change; a process that ended is not."""
    assert (status_of(error), error_answer(error)[0]) == (v1, v2)


@pytest.mark.anyio
@pytest.mark.parametrize("pieces", [0, 1, 3])
async def test_body_that_breaks_off_is_refused(pieces: int) -> None:
    """Also before its first piece: an empty body would be taken for what the device has sent."""
    messages: list[dict[str, Any]] = [{"type": "http.request", "body": b"abc", "more_body": True}] * pieces

    async def receive() -> dict[str, Any]:
        return messages.pop() if messages else {"type": "http.disconnect"}

    in_flight = InFlight(1_000)
    with in_flight.body("harbour") as held, pytest.raises(BadTensor):
        await whole_body(receive, 0, 100, held)
    assert in_flight.bytes == 0
