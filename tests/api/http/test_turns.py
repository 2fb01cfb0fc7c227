"""What one owner may take of a turn of the event loop, and what becomes of the rest."""

import asyncio
import json
from collections import Counter
from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest

from appliance.api.gateway import Gateway
from appliance.api.http.turns import PART_NS, STEP_NS, STRANGER, Turns
from appliance.api.http.websocket import WebSocket
from appliance.clock import NS_PER_MS
from tests.api.http.exchanges import connect
from tests.fakes.clock import settle, story
from tests.fakes.hand_clock import HandClock

MS = 0.001


class Ticks:
    """Counts the turns of the loop while it runs."""

    def __init__(self) -> None:
        self.count = 0
        self._handle = asyncio.get_running_loop().call_soon(self._tick)

    def _tick(self) -> None:
        self.count += 1
        self._handle = asyncio.get_running_loop().call_soon(self._tick)

    def stop(self) -> None:
        self._handle.cancel()


class Work:
    """Calls that take a millisecond each, and the owners of those that each turn of the loop made."""

    def __init__(self) -> None:
        self.clock = HandClock()
        self.turns = Turns(self.clock)
        self._made: dict[int, list[str]] = {}
        self._ticks = Ticks()
        self._all_made = asyncio.Event()
        self._left = 0

    def ask(self, owner: str, count: int) -> None:
        self._left += count
        for _ in range(count):
            self.turns.next(owner, partial(self._do, owner))

    def _do(self, owner: str) -> None:
        self.clock.pass_s(MS)
        self._made.setdefault(self._ticks.count, []).append(owner)
        self._left -= 1
        if not self._left:
            self._all_made.set()

    def fail(self) -> None:
        raise ValueError

    async def made(self) -> list[list[str]]:
        """Owners by turn, when all is done."""
        await self._all_made.wait()
        self._ticks.stop()
        return [self._made[turn] for turn in sorted(self._made)]


@story
async def test_owner_gets_its_part_of_each_loop_turn_until_its_calls_are_done() -> None:
    """Two milliseconds a turn: two calls."""
    work = Work()
    work.ask("a", 5)
    assert await work.made() == [["a", "a"], ["a", "a"], ["a"]]


@story
async def test_owners_share_a_loop_turn_and_take_the_next_in_order() -> None:
    """Eight milliseconds a turn are parts for four of six owners; the other two are first in the next."""
    work = Work()
    for owner in "abcdef":
        work.ask(owner, 4)
    assert ["".join(turn) for turn in await work.made()] == ["aabbccdd", "eeffaabb", "ccddeeff"]


@story
async def test_callers_without_a_tenant_get_the_last_part_of_each_loop_turn() -> None:
    work = Work()
    work.ask(STRANGER + "10.0.0.1", 3)
    for owner in "abcdef":
        work.ask(owner, 8)
    turns = await work.made()
    assert [one.startswith(STRANGER) for one in turns[0]] == [False] * 8 + [True]
    assert [one.startswith(STRANGER) for one in turns[1]] == [False] * 8 + [True]


@story
async def test_owner_over_its_part_may_go_on_in_the_next_loop_turn() -> None:
    turns = Turns(HandClock())
    turns.took("a", PART_NS - 1)
    assert not turns.is_over("a")
    turns.took("a", 1)
    assert turns.is_over("a")
    assert not turns.is_over("b")
    await settle()
    assert not turns.is_over("a")


@story
async def test_calls_behind_a_failing_call_still_run() -> None:
    failures: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda loop, context: failures.append(context))
    work = Work()
    work.turns.next("a", work.fail)
    work.ask("a", 2)
    work.ask("b", 1)
    assert sorted(owner for turn in await work.made() for owner in turn) == ["a", "a", "b"]
    assert len(failures) == 1


class Rows:
    """Rows of long answers, a tenth of a millisecond each, and how many of them each turn of the loop made."""

    def __init__(self, clock: HandClock) -> None:
        self.by_turn: Counter[int] = Counter()
        self._clock = clock
        self._ticks = Ticks()

    def of(self, count: int) -> Iterator[int]:
        for number in range(count):
            self._clock.pass_s(MS / 10)
            self.by_turn[self._ticks.count] += 1
            yield number

    def most_in_a_turn_ns(self) -> float:
        self._ticks.stop()
        return max(self.by_turn.values()) * NS_PER_MS / 10


@pytest.mark.parametrize("answers", [1, 64])
@story
async def test_long_answers_of_an_owner_leave_room_in_loop_turns(answers: int) -> None:
    """However many are made side by side; each is whole."""
    clock = HandClock()
    turns, rows = Turns(clock), Rows(clock)
    found = await asyncio.gather(*(turns.collect("a", rows.of(200)) for _ in range(answers)))
    assert found == answers * [list(range(200))]
    assert rows.most_in_a_turn_ns() <= PART_NS + STEP_NS


@pytest.mark.parametrize("owner", ["a", "b"])
@story
async def test_short_answer_waits_for_no_long_answer(owner: str) -> None:
    """Neither of its own owner nor of another one."""
    clock = HandClock()
    turns, rows = Turns(clock), Rows(clock)
    long = [asyncio.create_task(turns.collect("a", rows.of(2000))) for _ in range(3)]
    await asyncio.sleep(0)  # noqa: TID251 - one turn of the loop
    assert await turns.collect(owner, rows.of(2)) == [0, 1]
    assert not any(one.done() for one in long)
    assert [len(one) for one in await asyncio.gather(*long)] == 3 * [2000]
    rows.most_in_a_turn_ns()


@story
async def test_long_answers_of_an_owner_are_made_one_after_the_other() -> None:
    """But for their first steps: of many that are asked for at once few rows are held."""
    clock = HandClock()
    turns = Turns(clock)
    held: Counter[int] = Counter()
    most = 0

    def rows(answer: int) -> Iterator[int]:
        nonlocal most
        for number in range(200):
            clock.pass_s(MS / 10)
            held[answer] += 1
            most = max(most, held.total())
            yield number

    async def ask(answer: int) -> None:
        assert len(await turns.collect("a", rows(answer))) == 200
        del held[answer]

    await asyncio.gather(*(ask(answer) for answer in range(64)))
    assert most <= 64 * STEP_NS / (NS_PER_MS / 10) + 200


@story
async def test_long_answer_is_made_no_further_for_a_cancelled_caller() -> None:
    clock = HandClock()
    turns, rows = Turns(clock), Rows(clock)
    asking = asyncio.create_task(turns.collect("a", rows.of(2000)))
    while not rows.by_turn:  # noqa: ASYNC110 - turns of the loop, in which no time passes
        await asyncio.sleep(0)  # noqa: TID251 - one turn of the loop
    asking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asking
    made = rows.by_turn.total()
    assert await turns.collect("a", range(3)) == [0, 1, 2]
    rows.most_in_a_turn_ns()
    assert rows.by_turn.total() == made < 2000


@story
async def test_failure_in_a_long_answer_is_the_callers() -> None:
    clock = HandClock()
    turns = Turns(clock)

    def rows() -> Iterator[int]:
        for number in range(50):
            clock.pass_s(MS / 10)
            yield number
        raise ValueError("no more")

    with pytest.raises(ValueError, match="no more"):
        await turns.collect("a", rows())
    assert await turns.collect("a", [1]) == [1]


@story
async def test_of_an_owners_long_answers_one_is_read_at_a_time() -> None:
    """Beside another owner's; in the order of asking, and also behind a read that fails."""
    turns = Turns(HandClock())
    reading: Counter[str] = Counter()
    most: Counter[str] = Counter()

    async def read(owner: str, number: int) -> int:
        reading[owner] += 1
        most[owner] = max(most[owner], reading[owner])
        most["both"] = max(most["both"], reading.total())
        await asyncio.sleep(0.01)  # noqa: TID251 - virtual time
        reading[owner] -= 1
        if number == 1:
            raise ValueError(number)
        return number

    asked = [turns.alone(owner, partial(read, owner, number)) for number in range(4) for owner in "ab"]
    found = await asyncio.gather(*asked, return_exceptions=True)
    assert [one for one in found if isinstance(one, int)] == [0, 0, 2, 2, 3, 3]
    assert most == {"a": 1, "b": 1, "both": 2}


class Slow:
    """Counts what is asked of it, a millisecond each, in place of `/v2`."""

    def __init__(self, clock: HandClock) -> None:
        self._clock = clock
        self._left = 0
        self._ticks: Ticks | None = None
        self._by_turn: Counter[int] = Counter()
        self._all_asked = asyncio.Event()

    def begin_to_count(self, count: int) -> None:
        """From now on so much is asked."""
        self._left = count
        self._by_turn.clear()
        self._ticks = Ticks()

    async def most_in_a_turn(self) -> int:
        """When all has been asked."""
        await self._all_asked.wait()
        if self._ticks is not None:
            self._ticks.stop()
        return max(self._by_turn.values())

    def begin(self, scope: dict[str, Any]) -> Any:
        if self._ticks is not None:
            self._by_turn[self._ticks.count] += 1
        self._left -= 1
        if not self._left:
            self._all_asked.set()
        self._clock.pass_s(MS)
        return scope.pop("appliance.exchange").end(200, [(b"content-length", b"2")], b"ok")


@pytest.mark.parametrize("owners", [1, 3])
@story
async def test_pipelined_requests_of_many_connections_leave_room_in_loop_turns(owners: int) -> None:
    """64 connections with 32 requests each: a turn of the loop answers some of each owner, and at last all."""

    async def service(*_: Any) -> None:
        raise AssertionError("only /v2 is asked")

    clock = HandClock()
    turns = Turns(clock)
    slow = Slow(clock)
    gateway = Gateway(lambda: None, slow, service, turns)  # type: ignore[arg-type, return-value] # there is no box
    request = b"POST /v2/models/m/infer HTTP/1.1\r\nhost: box\r\ncontent-length: 2\r\n\r\n{}"
    protocols = []
    for number in range(64):
        protocol, _ = connect(gateway, turns=turns)
        protocol.app = gateway  # without uvicorn's wrapper
        protocol.tenant = f"tenant {number % owners}"
        protocol.data_received(request)  # of a new connection, which waits for nothing
        await settle()
        protocols.append(protocol)
    slow.begin_to_count(64 * 32)
    for protocol in protocols:
        protocol.data_received(request * 32)
    assert await slow.most_in_a_turn() * NS_PER_MS <= 2 * owners * PART_NS


STREAMS = 16
CLOCK = b'{"type": "clock", "sent_ms": 1.0}'
MESSAGE = bytes([0x81, 0x80 | len(CLOCK), 0, 0, 0, 0]) + CLOCK
SHAKE = (
    b"GET /v1/sessions/s/stream HTTP/1.1\r\nhost: box\r\nconnection: Upgrade\r\nupgrade: websocket\r\n"
    b"sec-websocket-version: 13\r\nsec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
)


class Hears:
    """Takes a tenth of a millisecond for each message of a stream; in place of the streams of sessions."""

    is_amid = False

    def __init__(self, clock: HandClock) -> None:
        self._clock = clock
        self.count = 0
        self.socket = WebSocket

    async def serve(self, scope: Any, socket: WebSocket) -> None:
        assert socket.accept(self, 4096)

    def text(self, message: bytes) -> None:
        self.count += 1
        self._clock.pass_s(MS / 10)

    binary = text

    def gathered(self, count: int) -> bool:
        return True

    def turn_ended(self) -> None:
        pass

    def broken(self, bound: Any) -> None:
        raise AssertionError(bound)

    each_second = turn_ended


@story
async def test_messages_of_many_streams_leave_room_in_loop_turns() -> None:
    """16 streams of one tenant with 150 messages each that have all come: a turn of the loop hears some, and at last
    all are heard."""

    async def service(*_: Any) -> None:
        raise AssertionError("only streams are asked")

    clock = HandClock()
    turns, hears = Turns(clock), Hears(clock)

    class Hearing(Gateway):
        async def streams(self) -> Any:
            return hears

    gateway = Hearing(lambda: None, Slow(clock), service, turns)  # type: ignore[arg-type, return-value]
    left: dict[Any, bytes] = {}
    paused: set[Any] = set()
    for _ in range(STREAMS):
        protocol, transport = connect(gateway, turns=turns)
        protocol.app, protocol.tenant = gateway, "harbour"
        transport.pause_reading = partial(paused.add, transport)  # type: ignore[method-assign]
        transport.resume_reading = partial(paused.discard, transport)  # type: ignore[method-assign]
        protocol.data_received(SHAKE)
        left[transport] = MESSAGE * 150
    await settle()
    most = 0
    while any(left.values()):
        before = hears.count
        for transport in [one for one, data in left.items() if data and one not in paused]:
            buffer = transport.receiver.get_buffer(-1)
            count = min(len(buffer), len(left[transport]))
            buffer[:count], left[transport] = left[transport][:count], left[transport][count:]
            transport.receiver.buffer_updated(count)
        most = max(most, hears.count - before)
        await asyncio.sleep(0)  # noqa: TID251 - one turn of the loop
    assert hears.count == STREAMS * 150
    assert most <= 4096 // len(MESSAGE) + 4 * STREAMS


@story
async def test_long_list_is_whole_json() -> None:
    """Rows of a millisecond each take many turns of the loop; an empty row is no row."""
    clock = HandClock()

    def rows() -> Iterator[bytes]:
        for number in range(50):
            clock.pass_s(MS)
            yield b"" if number == 7 else b'{"number":%d}' % number

    found = json.loads(await Turns(clock).json_list("harbour", rows()))
    assert found == [{"number": number} for number in range(50) if number != 7]
    assert await Turns(clock).json_list("harbour", []) == b"[]"
