"""Whatever way a connection's bytes are cut, each request has its own body and answer: read to its place, parsed, or
dropped.
"""

from hypothesis import given
from hypothesis import strategies as st

from appliance.api.http.bounded_protocol import BODY_WATER_BYTES
from tests.api.http.exchanges import HandTransport, connect
from tests.api.http.receiving import CUTS, Application, received, sent
from tests.fakes.clock import settle, story
from tests.harness.lanes import examples

SIZES = st.sampled_from([0, 3, 16_000, 16_384, 17_000, 100_000, 300_000, BODY_WATER_BYTES, BODY_WATER_BYTES + 1])
RUNS = st.lists(
    st.tuples(SIZES, st.sampled_from(["read", "refuse", "upgrade"]), st.booleans(), st.integers(1, 4)),
    min_size=1,
    max_size=4,
)
"""Size of the body, what becomes of it, whether it comes in chunks, and how often."""


@examples(gate=100)
@given(RUNS, CUTS, st.booleans())
@story
async def test_requests_cut_anywhere_have_their_own_bodies_and_answers(
    runs: list[tuple[int, str, bool, int]], cuts: tuple[int, list[int]], is_together: bool
) -> None:
    """Also many requests in one piece, and one in many; of heads that are known from before, and of clients that ask
    with each for another protocol. A connection ends where a body of unknown length is refused before its end.
    """
    requests = [(size, how, is_chunked) for size, how, is_chunked, times in runs for _ in range(times)]
    protocol, transport = connect(Application())
    pieces = [sent(size, how, number, is_chunked) for number, (size, how, is_chunked) in enumerate(requests)]
    for data in [b"".join(pieces)] if is_together else pieces:
        if not transport.is_half_closed:
            await received(transport, protocol, data, cuts)
    await settle()
    answers = b"".join(transport.written).split(b"HTTP/1.1 ")[1:]
    expected = [
        b"refused" if how == "refuse" else b"%d %d" % (size, number if size else 0)
        for number, (size, how, _) in enumerate(requests)
    ]
    assert [answer.rpartition(b"\r\n")[2] for answer in answers] == expected[: len(answers)]
    is_last = [b"connection: close\r\n" in answer for answer in answers]
    assert not any(is_last[:-1])
    assert transport.is_half_closed is is_last[-1]
    assert len(answers) == len(requests) or (is_last[-1] and requests[len(answers) - 1][1:] == ("refuse", True))
    assert not transport.is_closed


@story
async def test_body_of_a_known_caller_is_read_into_its_own_buffer() -> None:
    """The buffer that the event loop is given is what is missing of the body; behind a refusal and after the last byte
    the shared one is given again.
    """
    protocol, transport = connect(Application())
    await received(transport, protocol, sent(20_000, "read", 1), (300, [300_000]))
    for how in ("read", "refuse"):
        start = sent(500_000, how, 1)
        begun = start[: len(start) - 400_000]
        buffer = transport.receiver.get_buffer(-1)
        buffer[: len(begun)] = begun
        transport.receiver.buffer_updated(len(begun))
        await settle()
        missing = transport.receiver.get_buffer(-1)
        assert (len(missing) == 400_000) is (how == "read")
        await received_rest(transport, start[len(begun) :])
        assert len(transport.receiver.get_buffer(-1)) == len(buffer)
    assert [answer[9:12] for answer in transport.written] == [b"200", b"200", b"429"]


async def received_rest(transport: HandTransport, data: bytes) -> None:
    while data:
        buffer = transport.receiver.get_buffer(-1)
        count = min(len(buffer), len(data))
        buffer[:count] = data[:count]
        transport.receiver.buffer_updated(count)
        data = data[count:]
        await settle()
