"""One direction of a link."""

from hypothesis import given
from hypothesis import strategies as st

from appliance.clock import NS_PER_MS, NS_PER_S
from appliance.lab.links.link import Link, LinkShape
from appliance.lab.links.trace import drawn, steady

MS = NS_PER_MS


def test_packet_delay_is_transfer_time_behind_earlier_packets() -> None:
    """1,500 bytes take 1 ms at 12 Mbit/s; the second packet waits for the first."""
    link = Link(LinkShape(steady(12), delay_ms=10))
    assert link.passes(0, 1500).out_ns == 11 * MS
    assert link.passes(0, 1500).out_ns == 12 * MS
    assert link.passes(50 * MS, 1500).out_ns == 61 * MS


def test_packet_beyond_the_buffer_is_lost() -> None:
    link = Link(LinkShape(steady(12), buffer_bytes=3000))
    assert [link.passes(0, 1500).out_ns for _ in range(3)] == [MS, 2 * MS, None]
    assert link.passes(MS, 1500).out_ns == 3 * MS


def test_outage_drops_packets_sent_and_packets_in_flight() -> None:
    link = Link(LinkShape(steady(12)), outages=[(10 * MS, 20 * MS)])
    link.cut(30 * MS, 31 * MS)
    sent = {at_ms: link.passes(at_ms * MS, 1500).out_ns for at_ms in (0, 10, 19)}
    assert sent == {0: MS, 10: None, 19: None}
    assert link.passes(29 * MS + MS // 2, 1500).out_ns is None
    assert link.passes(40 * MS, 1500).out_ns == 41 * MS


def test_packet_loss_rate_is_as_configured() -> None:
    link = Link(LinkShape(steady(1000), loss=0.1), seed=1)
    lost = sum(link.passes(at * MS, 100).out_ns is None for at in range(10_000))
    assert 900 < lost < 1100


@given(
    packets=st.lists(st.tuples(st.integers(0, 50 * MS), st.integers(40, 1500)), min_size=1, max_size=60),
    jitter_ms=st.floats(0, 20),
    loss=st.floats(0, 0.5),
    seed=st.integers(0, 3),
)
def test_packets_arrive_in_order_and_never_too_early(
    packets: list[tuple[int, int]], jitter_ms: float, loss: float, seed: int
) -> None:
    trace = drawn("lte", seed)
    link = Link(LinkShape(trace, 5, jitter_ms, loss, buffer_bytes=20_000), seed)
    now_ns, last_ns, free_ns, held = 0, 0, 0, 0
    for pause_ns, size in packets:
        now_ns += pause_ns
        found = link.passes(now_ns, size)
        assert (found.in_ns, found.size_bytes) == (now_ns, size)
        held += size
        if found.out_ns is not None:
            free_ns = trace.through_ns(max(now_ns, free_ns), 8 * size)
            assert found.out_ns >= max(last_ns, trace.through_ns(now_ns, 8 * size))
            last_ns = found.out_ns
    if not jitter_ms and not loss and held <= 20_000:
        assert last_ns >= free_ns
    assert last_ns <= now_ns + NS_PER_S * 60


def test_picture_in_packets_with_shared_jitter_takes_as_long_as_in_parts() -> None:
    """50 kB over 152 Mbit/s: in packets with a delay each it is there with the slowest of 34, a millisecond later."""

    def mean_ms(packet_bytes: int, jitter_bytes: int) -> float:
        link = Link(LinkShape(steady(152), 7, 1.4, buffer_bytes=1 << 20, jitter_bytes=jitter_bytes), seed=1)
        took = []
        for picture in range(2000):
            at_ns, out_ns = picture * 70 * MS, 0
            for begin in range(0, 50_000, packet_bytes):
                out_ns = link.passes(at_ns, min(packet_bytes, 50_000 - begin)).out_ns or 0
            took.append((out_ns - at_ns) / MS)
        return sum(took) / len(took)

    parts = mean_ms(16_384, 0)
    assert abs(mean_ms(1500, 16_384) - parts) < 0.3
    assert mean_ms(1500, 0) > parts + 0.8
