"""What the live wall keeps of frames, and for how long."""

import json

from appliance.api import wall
from appliance.api.wall import LOOK_S, SILENT_NS, STREAMS_MAX, Wall
from appliance.clock import NS_PER_MS, LoopClock
from tests.fakes.clock import at_ms, story
from tests.fakes.hand_clock import HandClock

JPEG = b"\xff\xd8\xff"
TENANT = "harbour"


def frame(shown: Wall, client: str, body: bytes = JPEG, answer: bytes = b"{}", tenant: str = TENANT) -> None:
    """A frame of a pipeline's client that is still there."""
    shown.client_frame(tenant, "street", client, 1, body, answer, lambda _: True)


def names(shown: Wall, tenant: str = TENANT) -> list[str]:
    """Look at the wall of a tenant, and say which streams are on it."""
    return [json.loads(one)["stream"] for one in shown.look(tenant)]


@story
async def test_frame_is_not_kept_before_the_first_look() -> None:
    shown = Wall(LoopClock())
    frame(shown, "a")
    assert names(shown) == []
    assert shown.picture(TENANT, "a") == b""


@story
async def test_frames_are_forgotten_when_nobody_looks_any_more() -> None:
    """A look lasts a few seconds; looks at another tenant's wall make none longer."""
    clock = LoopClock()
    shown, start_ns = Wall(clock), clock.now_ns()
    names(shown)
    frame(shown, "a")
    await at_ms(start_ns, LOOK_S * 1000 - 1, clock.now_ns)
    assert shown.picture(TENANT, "a") == JPEG
    names(shown)
    await at_ms(start_ns, LOOK_S * 2000 - 2, clock.now_ns)
    names(shown, "museum")
    assert shown.picture(TENANT, "a") == JPEG
    await at_ms(start_ns, LOOK_S * 2000, clock.now_ns)
    assert shown.picture(TENANT, "a") == b""
    assert names(shown) == []
    shown.leave(TENANT)
    shown.leave("museum")


@story
async def test_leaving_forgets_frames_of_one_tenant_at_once() -> None:
    shown = Wall(LoopClock())
    for tenant in (TENANT, "museum"):
        names(shown, tenant)
        frame(shown, "a", tenant=tenant)
    shown.leave(TENANT)
    assert shown.picture(TENANT, "a") == b""
    assert shown.picture("museum", "a") == JPEG
    frame(shown, "b")
    assert names(shown) == []
    shown.leave(TENANT)
    shown.leave("museum")


@story
async def test_stream_that_has_left_or_is_silent_leaves_the_wall() -> None:
    clock = LoopClock()
    shown, start_ns, there = Wall(clock), clock.now_ns(), {"a"}
    names(shown)
    shown.client_frame(TENANT, "street", "a", 1, JPEG, b"{}", there.__contains__)
    frame(shown, "b")
    assert names(shown) == ["a", "b"]
    there.clear()
    assert names(shown) == ["b"]
    assert shown.picture(TENANT, "a") == b""
    for second in range(1, SILENT_NS // NS_PER_MS // 1000 + 2):
        await at_ms(start_ns, second * 1000, clock.now_ns)
        left = names(shown)
    assert left == []
    shown.leave(TENANT)


@story
async def test_picture_of_the_frame_that_was_looked_at_stays_until_the_next_look() -> None:
    """A newer frame that comes before the picture is fetched has another number."""
    clock = LoopClock()
    shown = Wall(clock)
    names(shown)
    frame(shown, "a", JPEG + b"1")
    (looked_at,) = [json.loads(one) for one in shown.look(TENANT)]
    for at in (1, 2):
        await at_ms(clock.now_ns(), 1, clock.now_ns)
        frame(shown, "a", JPEG + b"%d" % (1 + at))
        assert shown.picture(TENANT, "a", looked_at["number"]) == JPEG + b"1"
    assert shown.picture(TENANT, "a") == JPEG + b"3"
    names(shown)
    assert shown.picture(TENANT, "a", looked_at["number"]) == b""
    shown.leave(TENANT)


@story
async def test_number_of_a_frame_is_one_that_a_browser_does_not_round() -> None:
    """JavaScript rounds integers above 2⁵³; a machine that has run for a year is beyond that in nanoseconds."""
    clock = HandClock()
    shown = Wall(clock)
    clock.pass_s(365 * 24 * 3600)
    names(shown)
    frame(shown, "a")
    (looked_at,) = [json.loads(one) for one in shown.look(TENANT)]
    assert int(float(looked_at["number"])) == looked_at["number"] < 2**53
    assert shown.picture(TENANT, "a", looked_at["number"]) == JPEG
    shown.leave(TENANT)


@story
async def test_pictures_of_all_tenants_stay_within_the_bound_of_bytes() -> None:
    """What finds no room is shown without picture; a tenant that comes later finds some; what leaves makes room."""
    shown = Wall(LoopClock(), frames_bytes_max=8_000)
    for tenant in (TENANT, "museum"):
        names(shown, tenant)
    big = JPEG + bytes(997)
    for at in range(STREAMS_MAX):
        frame(shown, f"{at:02}", big, b"")
    kept = [name for name in names(shown) if shown.picture(TENANT, name)]
    assert len(kept) == 7
    assert len(names(shown)) == STREAMS_MAX
    frame(shown, "a", big, b"", tenant="museum")
    assert shown.picture("museum", "a") == big
    frame(shown, kept[0], JPEG + bytes(8_000), b"")
    assert shown.picture(TENANT, kept[0]) == b""
    shown.leave(TENANT)
    shown.leave("museum")
    names(shown)
    frame(shown, "whole", JPEG + bytes(7_997), b"")
    assert len(shown.picture(TENANT, "whole")) == 8_000
    shown.leave(TENANT)


@story
async def test_pictures_that_looks_have_shown_stay_within_as_many_bytes_again() -> None:
    """Tenants that look one after the other, each at a large frame that a small one follows."""
    clock = LoopClock()
    shown = Wall(clock, frames_bytes_max=8_000)
    tenants, numbers = [f"tenant-{at}" for at in range(5)], []
    for tenant in tenants:
        names(shown, tenant)
        frame(shown, "a", JPEG + bytes(6_997), b"", tenant)
        numbers += [json.loads(one)["number"] for one in shown.look(tenant)]
        await at_ms(clock.now_ns(), 1, clock.now_ns)
        frame(shown, "a", JPEG, b"", tenant)
    kept = [len(shown.picture(*looked_at)) for looked_at in zip(tenants, "aaaaa", numbers, strict=True)]
    assert sum(kept) == 7_000
    for tenant in tenants:
        assert shown.picture(tenant, "a") == JPEG
        shown.leave(tenant)
    names(shown)
    frame(shown, "a", JPEG + bytes(6_997), b"")
    (looked_at,) = [json.loads(one) for one in shown.look(TENANT)]
    await at_ms(clock.now_ns(), 1, clock.now_ns)
    frame(shown, "a")
    assert len(shown.picture(TENANT, "a", looked_at["number"])) == 7_000
    shown.leave(TENANT)


@story
async def test_streams_beyond_the_bound_and_long_answers_are_left_out() -> None:
    shown = Wall(LoopClock())
    names(shown)
    for at in range(STREAMS_MAX + 3):
        frame(shown, f"{at:02}", answer=b'"%b"' % (b"x" * wall.ANSWER_BYTES_MAX))
    assert names(shown) == [f"{at:02}" for at in range(STREAMS_MAX)]
    assert b'"answer":null' in next(iter(shown.look(TENANT)))
    shown.leave(TENANT)


@story
async def test_body_that_is_no_jpeg_or_png_and_answer_that_is_a_picture_are_not_kept() -> None:
    """A page that somebody sends in place of a picture is never served."""
    shown = Wall(LoopClock())
    names(shown)
    frame(shown, "a", b"<svg onload=alert(1)>", JPEG)
    assert shown.picture(TENANT, "a") == b""
    assert b'"picture":false,"answer":null}' in next(iter(shown.look(TENANT)))
    shown.leave(TENANT)
