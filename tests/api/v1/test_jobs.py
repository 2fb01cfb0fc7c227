"""Jobs over HTTP."""

import datetime
import json

import pytest

from appliance.api.v1.jobs import message_of
from appliance.client.sse import events
from appliance.demo.zoo import toys
from appliance.domain.jobs import JobRecord
from appliance.domain.states import JobState
from tests.api.stand import Stand, model_form

pytestmark = pytest.mark.anyio
QUIETLY = "waits for what requests leave of the processors: nothing new since 13:01:05 UTC"


async def test_job_events_follow_the_job_to_its_end(stand: Stand, digits: toys.Digits) -> None:
    """The stream begins with the job as it is, its percentage never falls, and it ends by itself when the job has."""
    museum = stand.client("museum")
    job = (await museum.post("/v1/models", **model_form(digits, "mine"))).json()["id"]
    answer = await museum.get(f"/v1/jobs/{job}/events")
    assert answer.headers["content-type"].startswith("text/event-stream")
    seen = [json.loads(event.data) for event in events(answer.text.split("\n")) if event.event == "job"]
    assert {one["id"] for one in seen} == {job}
    assert seen[-1]["state"] == "done"
    percents = [one["percent"] for one in seen]
    assert percents == sorted(percents)
    assert percents[-1] == 100
    assert len(seen) > 3


async def test_job_events_of_an_ended_job_are_one_event_and_the_end(stand: Stand) -> None:
    harbour = stand.client("harbour")
    job = (await harbour.get("/v1/jobs")).json()["items"][0]
    text = (await harbour.get(f"/v1/jobs/{job['id']}/events")).text
    assert [json.loads(event.data) for event in events(text.split("\n"))] == [job]
    assert (await harbour.get(f"/v1/jobs/{job['id']}")).json() == job


async def test_jobs_are_listed_newest_first(stand: Stand, digits: toys.Digits) -> None:
    """In pages of one, by the cursor."""
    museum = stand.client("museum")
    made = [(await museum.post("/v1/models", **model_form(digits, name))).json()["id"] for name in ("a", "b", "c")]
    seen, cursor = [], ""
    while cursor is not None:
        page = (await museum.get("/v1/jobs", params={"limit": 1, "cursor": cursor})).json()
        seen += [one["id"] for one in page["items"]]
        cursor = page["next_cursor"]
    assert seen == sorted(made, reverse=True)


@pytest.mark.parametrize(
    ("state", "waits", "quiet_s", "is_busy", "message"),
    [
        (JobState.RUNNING, "", 21, True, QUIETLY),
        (JobState.RUNNING, "", 19, True, "half of it"),
        (JobState.RUNNING, "", 21, False, "half of it"),
        (JobState.RUNNING, "waits behind an import", 21, True, "waits behind an import"),
        (JobState.DONE, "", 21, True, "half of it"),
    ],
)
def test_job_says_since_when_requests_leave_it_no_processors(
    state: JobState, waits: str, quiet_s: int, is_busy: bool, message: str
) -> None:
    at = datetime.datetime(2026, 5, 1, 13, 1, 5, tzinfo=datetime.UTC)
    job = JobRecord("j", "t", "t/m", state, "int8", 24.0, "half of it", "", at, at)
    assert message_of(job, waits, at + datetime.timedelta(seconds=quiet_s), is_busy=is_busy) == message


async def test_waiting_job_says_behind_how_many_imports(stand: Stand, digits: toys.Digits) -> None:
    """In its message, until its turn comes; imports of other tenants are told by number."""
    museum, harbour = stand.client("museum"), stand.client("harbour")
    for client, name in ((museum, "a"), (harbour, "b")):
        assert (await client.post("/v1/models", **model_form(digits, name))).status_code == 202
    job = (await museum.post("/v1/models", **model_form(digits, "c"))).json()["id"]
    said, listed = set(), set()
    while (shown := (await museum.get(f"/v1/jobs/{job}")).json())["state"] in ("queued", "running"):
        said.add(shown["message"])
        listed |= {one["message"] for one in (await museum.get("/v1/jobs")).json()["items"]}
    assert shown["state"] == "done"
    waiting = {"waits behind 2 imports, 1 of other tenants", "waits behind an import of another tenant"}
    assert said & waiting
    assert listed & waiting
    assert not shown["message"].startswith("waits")
