"""Notable requests: the latest of each application, bounded, alike ones counted."""

from appliance.domain.errors import ApplianceError, QueueFull
from appliance.domain.notable import Cause, Kind, NotableRequest, Spent
from appliance.runtime.notable import NotableRequests

SECOND_NS = 10**9


def made(
    at_s: float,
    application: str = "t/a",
    *causes: Cause,
    tenant: str = "t",
    variant: str = "v",
    problem: type[ApplianceError] | None = None,
) -> NotableRequest:
    at_ns = int(at_s * SECOND_NS)
    given = causes or (Cause.COLD,)
    return NotableRequest(
        kind=Kind(given, tenant, variant, "v", problem),
        application_id=application,
        id="",
        arrival_ns=at_ns - 5,
        ended_ns=at_ns,
        slo_ms=None,
        spent=Spent(),
        deadline_ns=None,
    )


def take(kept: NotableRequests, request: NotableRequest) -> None:
    """As the engine does."""
    if not kept.counts(request.application_id, request.kind, request.ended_ns):
        kept.add(request)


def test_notable_requests_keep_the_latest_of_each_application() -> None:
    """The oldest go; samples push nothing else out."""
    kept = NotableRequests(per_application=4, all_max=100)
    for second in range(6):
        take(kept, made(second))
        take(kept, made(second + 0.5, "t/a", Cause.SAMPLE))
    take(kept, made(0, "t/b"))
    assert [one.ended_ns / SECOND_NS for one in kept.of("t/a")] == [5.5, 5, 4, 3, 2]
    assert len(kept.of("t/b")) == 1
    assert len(kept) == 6
    kept.forget("t/a")
    assert kept.of("t/a") == []
    assert len(kept) == 1


def test_notable_requests_of_all_applications_are_bounded() -> None:
    """The application that had none for longest gives way first."""
    kept = NotableRequests(per_application=10, all_max=15)
    for number in range(8):
        for second in range(5):
            take(kept, made(second, f"t/{number}"))
    assert len(kept) == 15
    assert [len(kept.of(f"t/{number}")) for number in range(8)] == [0, 0, 0, 0, 0, 5, 5, 5]
    take(kept, made(99, "t/5"))
    assert [len(kept.of(f"t/{number}")) for number in (5, 6, 7)] == [6, 4, 5]


def test_flood_of_alike_notable_requests_is_counted_in_an_entry() -> None:
    """Those within a tenth of a second of the first make one entry; any difference makes another."""
    kept = NotableRequests()
    for _ in range(1000):
        take(kept, made(1.0, "t/a", Cause.FAILED, problem=QueueFull))
    assert [one.times for one in kept.of("t/a")] == [1000]
    take(kept, made(1.05, "t/a", Cause.FAILED, problem=QueueFull))
    assert [one.times for one in kept.of("t/a")] == [1001]
    for other in (
        made(1.2, "t/a", Cause.FAILED, problem=QueueFull),
        made(1.2, "t/a", Cause.FAILED),
        made(1.2, "t/a", Cause.LATE),
        made(1.2, "t/a", Cause.LATE, tenant="u"),
        made(1.2, "t/a", Cause.LATE, tenant="u", variant="w"),
    ):
        take(kept, other)
    assert [one.times for one in kept.of("t/a")] == [1, 1, 1, 1, 1, 1001]


def test_notable_requests_of_a_deleted_tenant_are_forgotten() -> None:
    """Also of an application that another tenant shares."""
    kept = NotableRequests(per_application=8, all_max=100)
    for number, (tenant, cause) in enumerate([("a", Cause.COLD), ("b", Cause.LATE), ("a", Cause.SAMPLE)]):
        take(kept, made(number, "t/shared", cause, tenant=tenant))
    take(kept, made(9, "t/other", tenant="a"))
    kept.forget_tenant("a")
    assert [one.kind.tenant for one in kept.of("t/shared")] == ["b"]
    assert (len(kept), kept.of("t/other")) == (1, [])
