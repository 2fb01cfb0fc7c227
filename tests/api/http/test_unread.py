"""Answers that callers do not read: who is closed where too much of them waits."""

from dataclasses import dataclass

from appliance.api.http.unread import Unread


@dataclass(eq=False)
class Line:
    """A connection."""

    name: str
    tenant: str | None
    unread_bytes: int
    is_open: bool = True

    def give_way(self) -> None:
        self.is_open = False


def test_longest_congested_connection_of_the_largest_tenant_is_closed() -> None:
    """Until what waits beside the newest fits; other tenants' connections stay, though congested for longer."""
    unread = Unread(100)
    few = Line("few", "small", 40)
    many = [Line(f"many-{number}", "large", 30) for number in range(4)]
    for line in (few, *many):
        unread.grew(line)
    assert [line.is_open for line in (few, *many)] == [True, False, True, True, True]
    assert unread.bytes == 40 + 3 * 30
    unread.grew(Line("new", "small", 1))
    assert [line.is_open for line in (few, *many)] == [True, False, False, True, True]


def test_unread_answer_above_the_bound_is_kept_while_alone() -> None:
    """It closes no connection, and is closed when another answer comes."""
    unread = Unread(100)
    large, small = Line("large", "t", 1000), Line("small", "t", 10)
    unread.grew(large)
    unread.grew(large)
    assert large.is_open
    unread.grew(small)
    assert (large.is_open, small.is_open, len(unread)) == (False, True, 1)


def test_unread_connection_counts_no_more_after_reading_or_closing() -> None:
    """However often its end is said."""
    unread = Unread(100)
    one, other = Line("one", None, 90), Line("other", None, 90)
    unread.grew(one)
    unread.end(one)
    unread.end(one)
    unread.grew(other)
    unread.grew(Line("third", None, 1))
    assert one.is_open
    assert other.is_open
    other.unread_bytes = 0
    assert unread.bytes == 1
