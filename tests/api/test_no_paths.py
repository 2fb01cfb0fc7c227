"""What the box answers where its disk or a file fails: never with a path of the machine."""

import sqlite3
from contextlib import closing

import pytest

from appliance.demo.zoo import toys
from tests.api.stand import Stand, model_form

pytestmark = pytest.mark.anyio


async def test_problem_of_a_broken_state_folder_names_no_path(stand: Stand, digits: toys.Digits) -> None:
    """Where folders of the box are no folders any more."""
    for name in ("uploads", "backups"):
        folder = stand.state_dir / name
        if folder.exists():
            folder.rename(folder.with_suffix(".gone"))
        folder.write_bytes(b"")
    answers = [
        await stand.client("harbour").post("/v1/uploads", json={}),
        await stand.client("harbour").post("/v1/models", **model_form(digits, "others")),
        await stand.client("admin").post("/v1/backups", json={}),
    ]
    assert {answer.status_code for answer in answers} & {500, 503}
    for answer in answers:
        assert str(stand.state_dir) not in answer.text
        assert "/tmp" not in answer.text


async def test_reason_of_a_job_or_variant_names_no_path(stand: Stand) -> None:
    """Whatever stood there before, in the words of the system."""
    reason = f"[Errno 5] Input/output error: '{stand.state_dir}/content/ab12'"
    with closing(sqlite3.connect(stand.state_dir / "appliance.db")) as connection:
        connection.execute("UPDATE job SET error = ?, message = ?", (reason, reason))
        connection.commit()
    jobs = (await stand.client("harbour").get("/v1/jobs")).json()["items"]
    assert jobs
    for job in jobs:
        assert job["error"] == job["message"] == "[Errno 5] Input/output error: 'ab12'"
