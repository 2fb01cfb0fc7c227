"""Applications over HTTP."""

import pytest

from tests.api.stand import ROWS, Stand, good, refusal

pytestmark = pytest.mark.anyio


async def test_application_is_created_changed_shown_and_deleted(stand: Stand) -> None:
    """Its promises are kept, changed one by one, and go with it; the model stays."""
    harbour = stand.client("harbour")
    order = {"name": "door", "model": "digits", "latency_slo_ms": 100, "accuracy_min": 0.2, "weight": 2}
    made = await good(harbour.post("/v1/applications", json=order))
    expected = {
        "tenant": "harbour",
        "task": "image-classification",
        "shared": False,
        "late": "drop",
        "prefer": "balanced",
        "unverified": "never",
        "verify": "on",
        "choice": "fp32 has the highest agreement with fp32, and no other is faster at a loss of at most 0.5 points at "
        "95 %. 1 of 1 have an agreement with fp32 of at least 20, 1 keep 100 ms",
        "accuracy_meaning": "agreement with fp32",
        "available": True,
        "variants": ["fp32"],
        "warnings": [],
        "slo_requests": 0,
        "slo_kept": None,
        "served": {"requests": 0, "warm": 0, "cold": 0}
        | dict.fromkeys(("warm_share", "cold_share", "accuracy", "accuracy_normalised", "robustness")),
    }
    assert made == order | expected
    changed = await harbour.patch("/v1/applications/door", json={"weight": 3})
    assert changed.json() == made | {"weight": 3}
    for key, values in {"prefer": ("speed", "balanced"), "late": ("run", "drop")}.items():
        for value in values:
            assert (await harbour.patch("/v1/applications/door", json={key: value})).json()[key] == value
    changed = await harbour.patch("/v1/applications/door", json={"latency_slo_ms": None})
    assert changed.json()["latency_slo_ms"] is None
    assert (await harbour.get("/v1/applications/door")).json() == changed.json()
    assert (await harbour.delete("/v1/applications/door")).json() == {"deleted": "door"}
    assert (await harbour.get("/v1/applications/door")).status_code == 404
    assert (await harbour.get("/v1/models/digits")).status_code == 200


async def test_application_patch_swaps_its_model(stand: Stand) -> None:
    """The task follows the model."""
    harbour = stand.client("harbour")
    assert (await harbour.post("/v1/applications", json={"name": "door", "model": "digits"})).status_code == 201
    changed = await harbour.patch("/v1/applications/door", json={"model": "adding"})
    assert (changed.json()["model"], changed.json()["task"]) == ("adding", "tensor")


async def test_application_runs_list_recent_warm_run_times_by_variant(stand: Stand) -> None:
    """One for each warm answer."""
    harbour = stand.client("harbour")
    assert (await harbour.get("/v1/applications/adding/runs")).json() == {"variants": {}}
    for _ in range(3):
        await good(harbour.post("/v1/applications/adding/predict", json=ROWS))
    seen = (await harbour.get("/v1/applications/adding/runs")).json()["variants"]["fp32"]
    assert len(seen) in (2, 3)  # the first was cold unless somebody was here before
    assert all(0 < ms < 1000 for ms in seen)
    assert (await harbour.get("/v1/applications/nobody/runs")).status_code == 404


async def test_own_application_hides_a_shared_application_of_its_name(stand: Stand) -> None:
    """The own application answers in place of the shared one, and the list shows one of the two."""
    harbour = stand.client("harbour")
    names = [one["name"] for one in (await harbour.get("/v1/applications")).json()["items"]]
    assert names == ["adding", "digits"]
    await harbour.post("/v1/applications", json={"name": "adding", "model": "digits"})
    shown = (await harbour.get("/v1/applications")).json()["items"]
    assert [(one["name"], one["tenant"], one["model"]) for one in shown] == [
        ("adding", "harbour", "digits"),
        ("digits", "harbour", "digits"),
    ]
    assert (await stand.client("museum").get("/v1/applications/adding")).json()["model"] == "adding"


async def test_application_slo_is_the_deadline_of_requests(stand: Stand) -> None:
    """A request to an application with an impossible promise is answered 504 without being run."""
    harbour = stand.client("harbour")
    await harbour.post("/v1/applications", json={"name": "hasty", "model": "adding", "latency_slo_ms": 0.0001})
    assert refusal(await harbour.post("/v1/applications/hasty/predict", json=ROWS)) == (504, "deadline-exceeded")


async def test_application_slo_that_no_variant_keeps_is_warned_of_or_refused(stand: Stand) -> None:
    """POST, PATCH and GET name the fastest variant and its P99; `strict` refuses, and then nothing was made or
    changed.
    """
    harbour = stand.client("harbour")
    order = {"name": "hasty", "model": "digits", "latency_slo_ms": 0.0001}
    refused = await harbour.post("/v1/applications?strict=true", json=order)
    assert refusal(refused) == (422, "slo-not-kept")
    assert (await harbour.get("/v1/applications/hasty")).status_code == 404
    made = await harbour.post("/v1/applications", json=order)
    assert made.status_code == 201
    (warning,) = made.json()["warnings"]
    (variant,) = (await harbour.get("/v1/models/digits")).json()["variants"]
    p99_ms = variant["profile"]["latencies"][0]["p99_ms"]
    assert (warning["type"], warning["variant"], warning["p99_ms"]) == ("slo-not-kept", "fp32", p99_ms)
    assert warning["detail"].startswith("no variant keeps 0.0001 ms: the fastest, fp32, takes")
    assert refused.json()["detail"] == warning["detail"]
    assert (refused.json()["variant"], refused.json()["p99_ms"]) == ("fp32", p99_ms)
    assert (await harbour.get("/v1/applications/hasty")).json()["warnings"] == [warning]
    changed = await harbour.patch("/v1/applications/hasty?strict=true", json={"latency_slo_ms": 60_000})
    assert (changed.status_code, changed.json()["warnings"]) == (200, [])
    refused = await harbour.patch("/v1/applications/hasty?strict=true", json={"latency_slo_ms": 0.0001})
    assert refused.status_code == 422
    assert (await harbour.get("/v1/applications/hasty")).json()["latency_slo_ms"] == 60_000
    tight = await harbour.patch("/v1/applications/hasty", json={"latency_slo_ms": 1.5 * p99_ms})
    assert tight.json()["warnings"][0]["detail"].startswith("no variant surely keeps")


async def test_application_shows_how_its_requests_were_served(stand: Stand) -> None:
    """One cold, two warm, one expired: 2/4 warm, 1/4 cold; the only variant has an accuracy of 1. An application whose
    only request expired has no robustness: the mean of both is a quarter; Jain's index of 1/2 and 0 is a half.
    """
    harbour, admin = stand.client("harbour"), stand.client()
    for name in ("sums", "hasty"):
        await harbour.post("/v1/applications", json={"name": name, "model": "adding"})
    for _ in range(3):
        assert (await harbour.post("/v1/applications/sums/predict", json=ROWS)).status_code == 200
    for name in ("sums", "hasty"):
        assert (await harbour.post(f"/v1/applications/{name}/predict?timeout_ms=0.0001", json=ROWS)).status_code == 504
    served = (await harbour.get("/v1/applications/sums")).json()["served"]
    assert served == {
        "requests": 4,
        "warm": 2,
        "cold": 1,
        "warm_share": 0.5,
        "cold_share": 0.25,
        "accuracy": 1.0,
        "accuracy_normalised": 1.0,
        "robustness": 0.5,
    }
    memory = (await harbour.get("/v1/memory")).json()
    assert (memory["robustness"], memory["fairness"]) == (0.25, 0.5)
    of_sums = '{application="harbour/sums",tenant="harbour"}'
    assert set((await admin.get("/metrics")).text.splitlines()) >= {
        f"appliance_application_warm_ratio{of_sums} 0.5",
        f"appliance_application_cold_ratio{of_sums} 0.25",
        f"appliance_application_accuracy_normalised{of_sums} 1.0",
        f"appliance_application_robustness{of_sums} 0.5",
        "appliance_robustness 0.25",
        "appliance_fairness 0.5",
    }


async def test_application_shows_the_share_of_requests_within_slo(stand: Stand) -> None:
    """Answers count, and refusals that are not the caller's own; another SLO begins anew."""
    harbour = stand.client("harbour")
    await harbour.post("/v1/applications", json={"name": "sums", "model": "adding", "latency_slo_ms": 60_000})

    async def figures() -> tuple[int, float | None]:
        shown = (await harbour.get("/v1/applications/sums")).json()
        return shown["slo_requests"], shown["slo_kept"]

    for _ in range(3):
        assert (await harbour.post("/v1/applications/sums/predict", json=ROWS)).status_code == 200
    assert await figures() == (3, 1.0)
    wrong = {"inputs": {"A": [[1, 2, 3, 4]]}}
    assert (await harbour.post("/v1/applications/sums/predict", json=wrong)).status_code == 422
    assert await figures() == (3, 1.0)
    assert (await harbour.post("/v1/applications/sums/predict?timeout_ms=0.0001", json=ROWS)).status_code == 504
    assert await figures() == (3, 1.0)
    await harbour.patch("/v1/applications/sums", json={"weight": 2})
    assert await figures() == (3, 1.0)
    await harbour.patch("/v1/applications/sums", json={"latency_slo_ms": 0.0001})
    assert await figures() == (0, None)
    assert (await harbour.post("/v1/applications/sums/predict", json=ROWS)).status_code == 504  # while it is decoded
    assert await figures() == (1, 0.0)
    assert (await harbour.post("/v1/applications/sums/predict?timeout_ms=60000", json=ROWS)).status_code == 200
    assert await figures() == (2, 0.0)


async def test_device_key_sees_callable_applications_and_changes_none(stand: Stand) -> None:
    device, probe = stand.client("device"), stand.client("probe")
    assert [one["name"] for one in (await device.get("/v1/applications")).json()["items"]] == ["digits"]
    assert [one["name"] for one in (await probe.get("/v1/applications")).json()["items"]] == ["adding", "digits"]
    assert (await device.get("/v1/applications/adding")).status_code == 404
    assert (await probe.delete("/v1/applications/digits")).status_code == 403


async def test_application_is_unloaded_and_loaded_by_its_owner_only(stand: Stand) -> None:
    """Out of service and back."""
    harbour = stand.client("harbour")
    shown = (await harbour.post("/v1/applications/digits/load", params={"variant": "fp32"})).json()
    assert shown["available"] is True
    shown = (await harbour.post("/v1/applications/digits/unload")).json()
    assert shown["available"] is False
    assert (await harbour.get("/v1/memory")).json()["builds"] == []
    assert (await harbour.post("/v1/applications/digits/load")).json()["available"] is True
    assert (await harbour.post("/v1/applications/digits/load", params={"variant": "none"})).status_code == 404
    assert (await harbour.post("/v1/applications/adding/unload")).status_code == 403
    assert (await stand.client("museum").post("/v1/applications/digits/unload")).status_code == 404
    assert (await stand.client("device").post("/v1/applications/digits/unload")).status_code == 403
